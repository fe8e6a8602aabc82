//! A limiter that goes by rules.

use std::sync::Arc;

use super::{Kind, Limiter};
use crate::acquire::Acquire;
use crate::epoch::Epochs;
use crate::error::{BuildError, Error};
use crate::key::Extracted;
use crate::rules::{Live, Reloaded, Rules};

impl Limiter {
    /// The rules that it goes by, if it [does](crate::LimiterBuilder::rules).
    #[must_use]
    pub fn rules(&self) -> Option<Rules> {
        self.live().map(|live| live.rules())
    }

    /// A limiter that goes by the policy of the rule of this name alone, for whatever request; `None` if there is no
    /// such rule, or if it is exempt.
    ///
    /// It spends the quotas that the adapters spend by that rule, and is how to [`peek`](Self::peek),
    /// [`pause`](Self::pause) or [`reset`](Self::reset) a key of it. When rules are [reloaded](Self::reload) it
    /// follows the rule; if that is removed, it goes on as it was until the rule comes back.
    ///
    /// ```
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = Rules::new([
    ///     Rule::named("search").path("/search").quota(Quota::per_minute(30)),
    ///     Rule::exempt(),
    /// ])?;
    /// let limiter = Limiter::builder().rules(rules).build()?;
    ///
    /// let search = limiter.rule("search").expect("a rule that limits");
    /// search.acquire("api.example.com").await?;
    /// assert_eq!(search.peek("api.example.com").await?.remaining(), 29);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<Self> {
        let epochs = self.live()?.rule(name)?;
        Some(Self {
            kind: Kind::Plain(epochs),
        })
    }

    /// Changes the rules, at once for all clones of this limiter and all that was made with it.
    ///
    /// Requests that are made from then on fall under the new rules, all of them. Those who wait keep their places,
    /// their slots, their bounds and the quotas that they came under, also where their rule is removed. Who waits where
    /// something [stands in](crate::Outage) for the store goes on there until it is back, whatever is set for outages by then.
    ///
    /// Rules are the same by their names. One whose policy is as it was goes on as if nothing had happened. One with
    /// other quotas does as [`set_quotas`](Self::set_quotas) has it: those have a state of their own, in which nothing counts
    /// that departed before, so that a window may hold what the old ones allow and what the new ones do. Where
    /// other bounds alone have changed, the state stays the same, so that never more departs than the quotas allow,
    /// and new requests wait behind those who are in line. The buffer, the guard, and what becomes of them while the store is out or
    /// has lost state, is for all in a line as the last who joined it has it. A rule that was removed and comes back finds
    /// what is left of its state.
    ///
    /// Other processes keep their rules until they are told. While they differ in
    /// [recovery](crate::Recovery::Strict), a key may rest for nothing.
    ///
    /// ```
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let others = || Rule::named("others").quota(Quota::per_second(10));
    /// let limiter = Limiter::builder().rules(Rules::new([others()])?).build()?;
    ///
    /// let search = Rule::named("search").path("/search").quota(Quota::per_minute(30));
    /// let reloaded = limiter.reload(Rules::new([search, others()])?)?;
    /// assert_eq!(reloaded.to_string(), "1 added (search), 1 as before");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if this limiter does not go by rules; [`set_quotas`](Self::set_quotas) changes what it goes by.
    pub fn reload(&self, rules: Rules) -> Result<Reloaded, BuildError> {
        match self.live() {
            Some(live) => Ok(live.reload(rules)),
            None => {
                let problem = "this limiter goes by one policy: see `set_quotas`";
                Err(BuildError::new("rules", problem))
            }
        }
    }

    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        match &self.kind {
            Kind::Plain(_) => None,
            Kind::Ruled(live) => Some(live),
        }
    }

    /// Of what requests go by that are known by a key alone.
    #[inline]
    pub(crate) fn epochs(&self) -> Epochs {
        match &self.kind {
            Kind::Plain(epochs) => epochs.clone(),
            Kind::Ruled(live) => live.last(),
        }
    }

    /// What asks for the permit of a request; `None` if it needs none.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "only the adapters extract keys")
    )]
    #[inline]
    pub(crate) fn admit(&self, extracted: Extracted) -> Result<Option<Acquire>, Error> {
        let refused = match extracted {
            Extracted::Key(key) => return Ok(Some(self.acquire(key))),
            Extracted::Exempt => return Ok(None),
            Extracted::Refused(reason) => (self.epochs(), reason),
            Extracted::Ruled(ruled) => match ruled.into_parts() {
                Ok((epochs, key, cost)) => return Ok(Some(Acquire::new(epochs, key).cost(cost))),
                Err(refused) => refused,
            },
        };
        let (epochs, reason) = refused;
        let policy = epochs.refuse_without_key();
        Err(Error::no_key(reason).by(&policy))
    }
}

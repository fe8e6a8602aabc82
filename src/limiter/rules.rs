//! A limiter with rules.

use std::sync::Arc;

use super::{Kind, Limiter, Live};
use crate::acquire::{Acquire, Cause, Error};
use crate::error::BuildError;
use crate::key::{Extracted, Ruled};
use crate::rules::{Reloaded, Rules};

impl Limiter {
    /// The rules, if it [has](crate::LimiterBuilder::rules) any.
    pub fn rules(&self) -> Option<Rules> {
        self.live().map(|live| live.rules())
    }

    /// A limiter that uses the policy of this rule for all requests; `None` if there is no such rule, or if it is
    /// exempt.
    ///
    /// It spends the same quotas as the adapters do by that rule, and is the way to [`peek`](Self::peek) at,
    /// [`pause`](Self::pause) or [`reset`](Self::reset) a key of it. It follows the rule when rules are
    /// [reloaded](Self::reload); if the rule is removed, its last policy stays.
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
        let handle = self.live()?.rule(name)?;
        Some(Self {
            kind: Kind::Rule(handle),
        })
    }

    /// Changes the rules, for all clones of this limiter at once.
    ///
    /// Rules are compared by their names. New requests fall under the new rules. Requests that wait keep their places and
    /// depart under the new policy of their rule, as with [`set_quotas`](Self::set_quotas); under the last one if the
    /// rule was removed. Recorded departures still count, also when a rule that was removed comes back.
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
    /// Fails if this limiter has no rules: [`set_quotas`](Self::set_quotas) changes its quotas.
    pub fn reload(&self, rules: Rules) -> Result<Reloaded, BuildError> {
        match self.live() {
            Some(live) => Ok(live.reload(rules)),
            None => {
                let problem = "this limiter has one policy: see `set_quotas`";
                Err(BuildError::new("rules", problem))
            }
        }
    }

    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        match &self.kind {
            Kind::Plain(_) | Kind::Rule(_) => None,
            Kind::Ruled(live) => Some(live),
        }
    }

    /// Sets the cost of a request, in place of that of its rule.
    pub(crate) fn with_cost(&self, extracted: Extracted, cost: impl FnOnce() -> u32) -> Extracted {
        match extracted {
            Extracted::Key(key) => {
                let handle = self.handle();
                Extracted::Ruled(Ruled {
                    policy: handle.policy(),
                    handle: Some(handle),
                    key: Ok(key),
                    cost: cost(),
                })
            }
            Extracted::Ruled(ruled) => Extracted::Ruled(Ruled {
                cost: cost(),
                ..ruled
            }),
            other => other,
        }
    }

    /// Asks for the permit of a request; `None` if it needs none.
    pub(crate) fn admit(&self, extracted: Extracted) -> Result<Option<Acquire>, Error> {
        let (handle, key, cost) = match extracted {
            Extracted::Key(key) => (self.handle(), Ok(key), 1),
            Extracted::Exempt => return Ok(None),
            Extracted::Refused(reason) => (self.handle(), Err(reason), 1),
            Extracted::Ruled(ruled) => {
                let handle = match ruled.handle {
                    Some(handle) => handle.downcast().expect("a limiter made it"),
                    None => (self.live().and_then(|live| live.rule(ruled.rule())))
                        .unwrap_or_else(|| self.handle()),
                };
                (handle, ruled.key, ruled.cost)
            }
        };
        match key {
            Ok(key) => Ok(Some(Acquire::new(handle, key).cost(cost))),
            Err(reason) => Err(Error::new(
                Cause::NoKey(reason),
                handle.refuse_without_key(),
            )),
        }
    }
}

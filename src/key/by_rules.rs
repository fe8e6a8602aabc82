use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::{Extracted, Key, KeyExtractor, RequestHead, host};
use crate::acquire::Acquire;
use crate::epoch::Epochs;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::rules::Live;

/// Goes by the [rules](crate::rules) of a limiter; by [`host`](super::host()) where it has none. The default of
/// the adapters.
///
/// The rules are those that hold when the request comes, whatever they were when this was made.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
/// use tower_throttle::rules::{Rule, Rules};
/// use tower_throttle::{Limiter, Quota};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = Rules::new([
///     Rule::named("search").path("/search").quota(Quota::per_minute(30)).cost(2),
///     Rule::exempt(),
/// ])?;
/// let extractor = key::by_rules(&Limiter::builder().rules(rules).build()?);
///
/// let search = http::Request::get("https://api.example.com/search").body(())?;
/// let Extracted::Ruled(ruled) = extractor.extract(&search) else { panic!("not exempt") };
/// assert_eq!(ruled.rule(), "search");
/// assert_eq!(ruled.key(), Some(&"api.example.com".into()));
/// assert_eq!(ruled.cost(), 2);
///
/// let other = http::Request::get("https://api.example.com/").body(())?;
/// assert_eq!(extractor.extract(&other), Extracted::Exempt);
/// # Ok(())
/// # }
/// ```
pub fn by_rules(limiter: &Limiter) -> ByRules {
    ByRules {
        live: limiter.live().cloned(),
    }
}

/// Goes by the rules of a limiter; made by [`by_rules`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct ByRules {
    live: Option<Arc<Live>>,
}

impl<R: RequestHead> KeyExtractor<R> for ByRules {
    fn extract(&self, request: &R) -> Extracted {
        match &self.live {
            Some(live) => live.judge(request),
            None => host().extract(request),
        }
    }
}

/// A request that a rule limits; see [`Extracted::Ruled`].
#[derive(Clone)]
pub struct Ruled {
    epochs: Epochs,
    key: Result<Key, Cow<'static, str>>,
    cost: u32,
}

impl Ruled {
    pub(crate) fn new(epochs: Epochs, key: Result<Key, Cow<'static, str>>, cost: u32) -> Self {
        Self { epochs, key, cost }
    }

    /// The rule's name.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.policy().name().unwrap_or_default()
    }

    /// The rule's policy.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        self.epochs.policy()
    }

    /// Whose quota the request spends; `None` if it [has no key](Self::refusal).
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref().ok()
    }

    /// Why the request has no key, and must not be sent, such as "the request has no host".
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.key.as_ref().err().map(Cow::as_ref)
    }

    /// What the request costs.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    pub(super) fn with_key(self, key: Key) -> Self {
        Self {
            key: Ok(key),
            ..self
        }
    }

    /// Asks for a permit.
    pub(crate) fn acquire(self) -> Result<Acquire, Error> {
        match self.key {
            Ok(key) => Ok(Acquire::new(self.epochs, key).cost(self.cost)),
            Err(reason) => {
                let policy = self.epochs.refuse_without_key();
                Err(Error::no_key(reason).by(&policy))
            }
        }
    }

    /// The epochs in which it asks for a permit, the key and the cost; or those that it has no key for, and why.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a server asks apart")
    )]
    pub(crate) fn into_parts(self) -> Result<(Epochs, Key, u32), (Epochs, Cow<'static, str>)> {
        let Self { epochs, key, cost } = self;
        match key {
            Ok(key) => Ok((epochs, key, cost)),
            Err(reason) => Err((epochs, reason)),
        }
    }
}

/// Of the same rule as it is, with the same key and cost.
impl PartialEq for Ruled {
    fn eq(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.key.clone(), it.cost);
        self.policy().id() == other.policy().id() && of(self) == of(other)
    }
}

impl Eq for Ruled {}

impl fmt::Debug for Ruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ruled")
            .field("rule", &self.rule())
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish()
    }
}

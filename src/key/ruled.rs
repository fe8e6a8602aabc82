//! A request that a rule limits: [`Ruled`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::Key;
use crate::policy::Policy;

/// A request that a rule limits; see [`Extracted::Ruled`](super::Extracted::Ruled).
#[derive(Clone)]
#[non_exhaustive]
pub struct Ruled {
    /// The limiter's handle of the rule; `None` from a table that belongs to no limiter.
    pub(crate) handle: Option<Arc<dyn Any + Send + Sync>>,
    /// The rule's policy.
    pub policy: Arc<Policy>,
    /// The key whose quota the request spends, or the reason why it has none and must not be sent, such as "the request
    /// has no host".
    pub key: Result<Key, Cow<'static, str>>,
    /// The cost of the request.
    pub cost: u32,
}

impl Ruled {
    /// The rule's name.
    pub fn rule(&self) -> &str {
        self.policy.name().unwrap_or_default()
    }
}

/// Equal by policy, key and cost.
impl PartialEq for Ruled {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.policy.clone(), it.key.clone(), it.cost);
        parts(self) == parts(other)
    }
}

impl fmt::Debug for Ruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ruled")
            .field("rule", &self.rule())
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish()
    }
}

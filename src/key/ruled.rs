//! A request that a rule limits: [`Ruled`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::Key;
use crate::policy::Policy;

/// A request that a rule limits; see [`Extracted::Ruled`](super::Extracted::Ruled).
#[derive(Clone)]
pub struct Ruled {
    /// The limiter's handle of the rule.
    pub(crate) handle: Arc<dyn Any + Send + Sync>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) key: Result<Key, Cow<'static, str>>,
    pub(crate) cost: u32,
}

impl Ruled {
    /// The rule's name.
    pub fn rule(&self) -> &str {
        self.policy().name().unwrap_or_default()
    }

    /// The rule's policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The key whose quota the request spends; `None` if it [has no key](Self::refusal).
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref().ok()
    }

    /// The reason why the request has no key and must not be sent, such as "the request has no host".
    pub fn refusal(&self) -> Option<&str> {
        self.key.as_ref().err().map(Cow::as_ref)
    }

    /// The cost of the request.
    pub fn cost(&self) -> u32 {
        self.cost
    }
}

/// Equal by policy, key and cost.
impl PartialEq for Ruled {
    fn eq(&self, other: &Self) -> bool {
        let policy = |it: &Self| (it.rule().to_owned(), it.policy.quotas().to_vec());
        policy(self) == policy(other) && (&self.key, self.cost) == (&other.key, other.cost)
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

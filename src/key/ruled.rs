//! A request that a rule limits: [`Ruled`].

use std::borrow::Cow;
use std::sync::Arc;

use super::Key;
use crate::policy::Policy;

/// A request that a rule limits; see [`Extracted::Ruled`](super::Extracted::Ruled).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Ruled {
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

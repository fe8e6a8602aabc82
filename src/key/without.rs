use std::borrow::Cow;

use super::{Extracted, Key};

/// What becomes of a request without that which would be its key.
#[derive(Debug, Clone)]
pub(super) enum Without {
    Refuse,
    Exempt,
    Key(Key),
}

impl Without {
    /// The reason is made only for a refusal.
    pub(super) fn extracted<C>(&self, reason: impl FnOnce() -> C) -> Extracted
    where
        C: Into<Cow<'static, str>>,
    {
        match self {
            Self::Refuse => Extracted::Refused(reason().into()),
            Self::Exempt => Extracted::Exempt,
            Self::Key(key) => Extracted::Key(key.clone()),
        }
    }
}

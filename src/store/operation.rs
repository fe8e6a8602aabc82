//! What a store is asked for: [`Operation`].

use crate::listed::listed;

listed! {
    /// What a store was asked for, named as the methods of [`Store`](crate::store::Store).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Operation {
        /// Slots for requests.
        Reserve,
        /// To take slots back.
        Release,
        /// How a key stands.
        Peek,
        /// To heed what is said of a key, or whether anything was.
        Heed,
        /// To forget a key.
        Reset,
        /// For a sign of life.
        Check,
    }
}

impl Operation {
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "only metrics are labeled")
    )]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Release => "release",
            Self::Peek => "peek",
            Self::Heed => "heed",
            Self::Reset => "reset",
            Self::Check => "check",
        }
    }
}

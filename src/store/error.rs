//! Why a store did not answer: [`StoreError`].

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Why a store did not answer, or not with sense.
///
/// Clones are cheap, as all the requests that shared a call share its error.
#[derive(Debug, Clone)]
pub struct StoreError {
    message: &'static str,
    unknown: bool,
    is_outage: bool,
    /// Which part of the store was asked, if it is known.
    part: Option<u64>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// An error that says so, of a call that recorded nothing. Unless told [otherwise](Self::no_outage), the
    /// store is out, and the limiter's outage policy says what is to be done.
    #[must_use]
    pub fn new(message: &'static str) -> Self {
        Self {
            message,
            unknown: false,
            is_outage: true,
            part: None,
            source: None,
        }
    }

    /// The same error, with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// The same error, of a call that may yet have recorded what was asked of it.
    #[must_use]
    pub fn outcome_unknown(mut self) -> Self {
        self.unknown = true;
        self
    }

    /// The same error, of this call alone: the store answers others, and to ask for the same again is no
    /// use.
    #[must_use]
    pub fn no_outage(mut self) -> Self {
        self.is_outage = false;
        self
    }

    /// The same error, of a call to this [part](crate::store::Store::part) of the store, for one whose keys move.
    #[must_use]
    pub fn of_part(mut self, part: u64) -> Self {
        self.part = Some(part);
        self
    }

    pub(crate) fn part(&self) -> Option<u64> {
        self.part
    }

    /// Whether the store cannot answer anybody at present, as far as this call shows.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.is_outage
    }

    /// Whether slots may have been reserved that nobody will use, because the call was lost after
    /// it had been sent. They stay reserved until their time has passed.
    ///
    /// If `false`, nothing was consumed.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.unknown
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

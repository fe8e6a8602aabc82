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
    kind: Kind,
    /// Which part of the store was asked, if it is known.
    part: Option<u64>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The store answers nobody.
    Outage,
    /// It answers others.
    Call,
    /// What it holds of this key is not its own.
    ForeignValue,
    /// There is no store, as nothing says where.
    InvalidUrl,
}

impl StoreError {
    /// An error that says so, of a call that recorded nothing. Unless told [otherwise](Self::no_outage), the
    /// store is out, and the limiter's outage policy says what is to be done.
    #[must_use]
    pub fn new(message: &'static str) -> Self {
        Self {
            message,
            unknown: false,
            kind: Kind::Outage,
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
        self.kind = Kind::Call;
        self
    }

    /// The same error, as something else has written what stands there for the key: [no outage](Self::no_outage).
    #[must_use]
    pub fn foreign_value(mut self) -> Self {
        self.kind = Kind::ForeignValue;
        self
    }

    /// The same error, of a URL that no store is connected to: [no outage](Self::no_outage).
    #[cfg(feature = "redis")]
    pub(crate) fn invalid_url(mut self) -> Self {
        self.kind = Kind::InvalidUrl;
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
        self.kind == Kind::Outage
    }

    /// Whether something else has written what stands there for the key, be it by the same name or over it: it stays
    /// so until somebody deletes that. Other keys are served.
    #[must_use]
    pub fn is_foreign_value(&self) -> bool {
        self.kind == Kind::ForeignValue
    }

    /// Whether what was to say where the store is does not: nothing was connected to.
    #[must_use]
    pub fn is_invalid_url(&self) -> bool {
        self.kind == Kind::InvalidUrl
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

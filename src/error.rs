//! What can go wrong: [`BuildError`] in a configuration, [`Error`] for a request.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::permit::Limited;
use crate::store::StoreError;

/// A configuration that cannot hold, with the name of the field and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    field: Cow<'static, str>,
    problem: Cow<'static, str>,
}

impl BuildError {
    pub(crate) fn new(
        field: impl Into<Cow<'static, str>>,
        problem: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// What is wrong, without the name of the field.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl StdError for BuildError {}

/// Why a request did not get a permit. Nothing was consumed, unless [`is_store`](Self::is_store)
/// says otherwise.
#[derive(Debug)]
pub struct Error {
    /// A pointer, so that a permit or an error is no more work to move than the permit alone.
    kind: Box<Kind>,
}

#[derive(Debug)]
enum Kind {
    TooLong { waited: Duration, limited: Limited },
    LineFull { waiting: usize },
    TooCostly { cost: u32, most: u32 },
    ZeroCost,
    EmptyKey,
    NoKey(Cow<'static, str>),
    Store(StoreError),
}

impl Error {
    /// After it had waited so long.
    pub(crate) fn too_long(waited: Duration, limited: Limited) -> Self {
        Self::from(Kind::TooLong { waited, limited })
    }

    pub(crate) fn line_full(waiting: usize) -> Self {
        Self::from(Kind::LineFull { waiting })
    }

    pub(crate) fn too_costly(cost: u32, most: u32) -> Self {
        Self::from(Kind::TooCostly { cost, most })
    }

    pub(crate) fn zero_cost() -> Self {
        Self::from(Kind::ZeroCost)
    }

    pub(crate) fn empty_key() -> Self {
        Self::from(Kind::EmptyKey)
    }

    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "only the adapters extract keys")
    )]
    pub(crate) fn no_key(reason: Cow<'static, str>) -> Self {
        Self::from(Kind::NoKey(reason))
    }

    pub(crate) fn store(error: StoreError) -> Self {
        Self::from(Kind::Store(error))
    }

    /// Whether the wait would have exceeded `max_wait` or the deadline.
    ///
    /// [`wait`](Self::wait) says how long it would have been.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        matches!(*self.kind, Kind::TooLong { .. })
    }

    /// Whether the line of the key was as long as `max_waiting` allows.
    #[must_use]
    pub fn is_line_full(&self) -> bool {
        matches!(*self.kind, Kind::LineFull { .. })
    }

    /// Whether the request can never depart, because it costs 0 or more than its quotas hold.
    #[must_use]
    pub fn is_invalid_cost(&self) -> bool {
        matches!(*self.kind, Kind::TooCostly { .. } | Kind::ZeroCost)
    }

    /// Whether the key was empty.
    #[must_use]
    pub fn is_invalid_key(&self) -> bool {
        matches!(*self.kind, Kind::EmptyKey)
    }

    /// Whether the [`KeyExtractor`](crate::key::KeyExtractor) refused the request.
    #[must_use]
    pub fn is_missing_key(&self) -> bool {
        matches!(*self.kind, Kind::NoKey(_))
    }

    /// Whether the store did not answer, or not with sense; the [`StoreError`] is the source.
    ///
    /// Whether slots were consumed depends on how far the call came: see
    /// [`StoreError::is_outcome_unknown`].
    #[must_use]
    pub fn is_store(&self) -> bool {
        matches!(*self.kind, Kind::Store(_))
    }

    /// How long the request would have had to wait, if it [was limited](Self::is_limited): in all, with the
    /// time that it had waited already.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match *self.kind {
            Kind::TooLong { waited, limited } => Some(waited + limited.delay()),
            _ => None,
        }
    }

    /// How the key stood when the request [was limited](Self::is_limited): how long from then, and when all
    /// may depart.
    #[must_use]
    pub fn limited(&self) -> Option<&Limited> {
        match &*self.kind {
            Kind::TooLong { limited, .. } => Some(limited),
            _ => None,
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self {
            kind: Box::new(kind),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::TooLong { waited, limited } => write!(
                f,
                "rate limited: a wait of {:.3?} is longer than allowed",
                *waited + limited.delay()
            ),
            Kind::LineFull { waiting } => {
                write!(f, "rate limited: {waiting} requests are waiting already")
            }
            Kind::TooCostly { cost, most } => {
                write!(
                    f,
                    "a cost of {cost} can never depart, as the quotas hold {most}"
                )
            }
            Kind::ZeroCost => f.write_str("a cost of 0 is no request"),
            Kind::EmptyKey => f.write_str("the key of the rate limit is empty"),
            Kind::NoKey(reason) => write!(f, "the request has no key: {reason}"),
            Kind::Store(error) if error.is_outage() => {
                f.write_str("the store is out, and cannot say when the request may depart")
            }
            Kind::Store(_) => f.write_str("the store cannot say when the request may depart"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.kind {
            Kind::Store(error) => Some(error),
            _ => None,
        }
    }
}

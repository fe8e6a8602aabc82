//! What can go wrong: [`BuildError`] in a configuration, [`Error`] for a request.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::permit::Limited;
use crate::policy::Policy;
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

    /// The rules of a limiter set this field.
    pub(crate) fn set_by_rules(field: &'static str) -> Self {
        Self::new(field, "the limiter has rules, which set it: see `reload`")
    }

    /// What is wrong, with the value and without the name of the field, unless that holds the value.
    pub(crate) fn detail(&self) -> String {
        match self.field.contains('`') {
            true => self.to_string(),
            false => self.problem.to_string(),
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
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    /// The name of the policy.
    policy: Option<Box<str>>,
}

#[derive(Debug)]
enum Kind {
    TooLong { waited: Duration, limited: Limited },
    QueueFull { waiting: usize },
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

    pub(crate) fn queue_full(waiting: usize) -> Self {
        Self::from(Kind::QueueFull { waiting })
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

    pub(crate) fn no_key(reason: Cow<'static, str>) -> Self {
        Self::from(Kind::NoKey(reason))
    }

    pub(crate) fn store(error: StoreError) -> Self {
        Self::from(Kind::Store(error))
    }

    /// By this policy.
    pub(crate) fn by(mut self, policy: &Policy) -> Self {
        self.inner.policy = policy.name().map(Box::from);
        self
    }

    /// The name of the policy by which there is no permit: that of the [rule](crate::rules), or of the
    /// [limiter](crate::LimiterBuilder::name), if it has one.
    #[must_use]
    pub fn policy_name(&self) -> Option<&str> {
        self.inner.policy.as_deref()
    }

    /// Whether the wait would have exceeded `max_wait` or the deadline.
    ///
    /// [`wait`](Self::wait) says how long it would have been.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        matches!(self.inner.kind, Kind::TooLong { .. })
    }

    /// Whether the line of the key was as long as `max_waiting` allows.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        matches!(self.inner.kind, Kind::QueueFull { .. })
    }

    /// Whether the request can never depart, because it costs 0 or more than its quotas hold.
    #[must_use]
    pub fn is_invalid_cost(&self) -> bool {
        matches!(self.inner.kind, Kind::TooCostly { .. } | Kind::ZeroCost)
    }

    /// Whether the key was empty.
    #[must_use]
    pub fn is_invalid_key(&self) -> bool {
        matches!(self.inner.kind, Kind::EmptyKey)
    }

    /// Whether the [`KeyExtractor`](crate::key::KeyExtractor) refused the request.
    #[must_use]
    pub fn is_missing_key(&self) -> bool {
        matches!(self.inner.kind, Kind::NoKey(_))
    }

    /// Whether the store did not answer, or not with sense; the [`StoreError`] is the source.
    ///
    /// Whether slots were consumed depends on how far the call came: see
    /// [`StoreError::is_outcome_unknown`].
    #[must_use]
    pub fn is_store(&self) -> bool {
        matches!(self.inner.kind, Kind::Store(_))
    }

    /// How long the request would have had to wait, if it [was limited](Self::is_limited): in all, with the
    /// time that it had waited already.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match self.inner.kind {
            Kind::TooLong { waited, limited } => Some(waited + limited.delay()),
            _ => None,
        }
    }

    /// How the key stood when the request [was limited](Self::is_limited): how long from then, and when all
    /// may depart.
    #[must_use]
    pub fn limited(&self) -> Option<&Limited> {
        match &self.inner.kind {
            Kind::TooLong { limited, .. } => Some(limited),
            _ => None,
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self {
            inner: Box::new(Inner { kind, policy: None }),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = self.policy_name() {
            write!(f, "`{policy}`: ")?;
        }
        match &self.inner.kind {
            Kind::TooLong { waited, limited } => write!(
                f,
                "rate limited: a wait of {:.3?} is longer than allowed",
                *waited + limited.delay()
            ),
            Kind::QueueFull { waiting } => {
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
        match &self.inner.kind {
            Kind::Store(error) => Some(error),
            _ => None,
        }
    }
}

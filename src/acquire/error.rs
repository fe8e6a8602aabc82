//! The reason why a request gets no permit: [`Error`].

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;
use crate::permit::Snapshot;
use crate::policy::Policy;
use crate::telemetry::Outcome;

/// The reason why a request gets no permit. Nothing was recorded, except as [`is_store`](Self::is_store) says.
///
/// Clones are cheap.
#[derive(Clone)]
pub struct Error {
    /// A pointer, as results are moved.
    inner: Arc<Inner>,
}

struct Inner {
    cause: Cause,
    policy: Arc<Policy>,
}

#[derive(Debug)]
pub(crate) enum Cause {
    /// It would have to wait too long, after it had waited for so long.
    TooLong {
        waited: Duration,
        snapshot: Snapshot,
    },
    QueueFull {
        waiting: usize,
        /// If the store was asked for it.
        snapshot: Option<Snapshot>,
    },
    InvalidCost(String),
    EmptyKey,
    NoKey(Cow<'static, str>),
    Store(StoreError),
}

impl Cause {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::TooLong { .. }
            | Self::QueueFull {
                snapshot: Some(_), ..
            } => Outcome::Limited,
            Self::QueueFull { snapshot: None, .. } => Outcome::QueueFull,
            Self::InvalidCost(_) | Self::EmptyKey | Self::NoKey(_) => Outcome::Invalid,
            Self::Store(error) if error.is_outage() => Outcome::StoreOut,
            Self::Store(_) => Outcome::StoreError,
        }
    }
}

impl Error {
    pub(crate) fn new(cause: Cause, policy: Arc<Policy>) -> Self {
        Self {
            inner: Arc::new(Inner { cause, policy }),
        }
    }

    /// The name of the policy: of the [rule](crate::rules), or of the [limiter](crate::LimiterBuilder::name) if it has one.
    #[must_use]
    pub fn policy_name(&self) -> Option<&str> {
        self.policy().name()
    }

    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.inner.policy
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.inner.cause
    }

    /// Whether the wait would have exceeded `max_wait` or the deadline.
    ///
    /// [`wait`](Self::wait) says how long it would have been.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        matches!(self.inner.cause, Cause::TooLong { .. })
    }

    /// Returns true if the queue of the key already held `max_waiting` requests.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        matches!(self.inner.cause, Cause::QueueFull { .. })
    }

    /// Whether the request can never depart, because it costs 0 or more than its quotas allow at once.
    #[must_use]
    pub fn is_invalid_cost(&self) -> bool {
        matches!(self.inner.cause, Cause::InvalidCost(_))
    }

    /// Whether the key was empty.
    #[must_use]
    pub fn is_invalid_key(&self) -> bool {
        matches!(self.inner.cause, Cause::EmptyKey)
    }

    /// Whether the [`KeyExtractor`](crate::key::KeyExtractor) refused the request.
    #[must_use]
    pub fn is_missing_key(&self) -> bool {
        matches!(self.inner.cause, Cause::NoKey(_))
    }

    /// Whether the store did not answer, or with an error; the [`StoreError`] is the source.
    ///
    /// The store may have recorded a departure: see [`StoreError::is_outcome_unknown`].
    #[must_use]
    pub fn is_store(&self) -> bool {
        matches!(self.inner.cause, Cause::Store(_))
    }

    /// How long the request would have had to wait, if it [was limited](Self::is_limited), including the time that it had
    /// waited already.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match self.inner.cause {
            Cause::TooLong { waited, snapshot } => Some(waited + snapshot.delay()),
            _ => None,
        }
    }

    /// The state of the key when the request [was limited](Self::is_limited).
    ///
    /// An [inbound](crate::tower::inbound) layer also knows it if the [queue was full](Self::is_queue_full).
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match &self.inner.cause {
            Cause::TooLong { snapshot, .. } => Some(snapshot),
            Cause::QueueFull { snapshot, .. } => snapshot.as_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = self.policy_name() {
            write!(f, "`{policy}`: ")?;
        }
        match &self.inner.cause {
            Cause::TooLong { waited, snapshot } => write!(
                f,
                "rate limited: a wait of {:.3?} is longer than allowed",
                *waited + snapshot.delay()
            ),
            Cause::QueueFull { waiting, .. } => {
                write!(f, "rate limited: {waiting} requests are waiting already")
            }
            Cause::InvalidCost(problem) => f.write_str(problem),
            Cause::EmptyKey => f.write_str("the key of the rate limit is empty"),
            Cause::NoKey(reason) => write!(f, "the request has no key: {reason}"),
            Cause::Store(error) if error.is_outage() => {
                f.write_str("the store is out, and cannot say when the request may depart")
            }
            Cause::Store(_) => f.write_str("the store cannot say when the request may depart"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("cause", self.cause())
            .field("policy", &self.policy().label())
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.inner.cause {
            Cause::Store(error) => Some(error),
            _ => None,
        }
    }
}

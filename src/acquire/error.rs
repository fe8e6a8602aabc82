//! The reason why a request gets no permit: [`Error`].

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;
use crate::key::{Key, NoKey};
use crate::policy::Policy;
use crate::snapshot::Snapshot;
use crate::telemetry::Outcome;

/// The reason why a request gets no permit, or why its work was dropped. Nothing was recorded, except as
/// [`is_store`](Self::is_store) says, and except for [`LostPlace`](ErrorKind::LostPlace): that request had departed, and its
/// work was dropped before its end.
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
    key: Key,
}

/// Why a request gets no permit; see [`Error::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The wait would exceed `max_wait`, the deadline, or the capacity of a leaky bucket.
    TooLong,
    /// The queue of the key already holds `max_waiting` requests.
    QueueFull,
    /// The request costs 0, or more than its quotas allow at once; it names no cost in a unit without a
    /// [default cost](crate::Quota::default_cost), or a cost in a unit that no quota counts; or a [charge](crate::Charge) cannot
    /// be corrected.
    InvalidCost,
    /// The weight of its [`Share`](crate::Share) is not from 1 to 65,535.
    InvalidShare,
    /// The key is empty.
    EmptyKey,
    /// The [`KeyExtractor`](crate::key::KeyExtractor) found no key.
    NoKey,
    /// The store did not answer, or with an error; or the request has to wait, or to call the store, outside of a tokio runtime.
    Store,
    /// The work was dropped, as the lease of its place had ended; see [`Lost::Abort`](crate::Lost::Abort).
    LostPlace,
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
        /// If the store has answered before.
        snapshot: Option<Snapshot>,
    },
    InvalidCost(String),
    InvalidShare(String),
    EmptyKey,
    NoKey(NoKey),
    Store(StoreError),
    LostPlace,
}

impl Cause {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::TooLong { .. } => Outcome::Limited,
            Self::QueueFull { .. } => Outcome::QueueFull,
            Self::InvalidCost(_) | Self::InvalidShare(_) | Self::EmptyKey | Self::NoKey(_) => {
                Outcome::Invalid
            }
            Self::Store(error) if error.is_outage() => Outcome::StoreOut,
            Self::Store(_) | Self::LostPlace => Outcome::StoreError,
        }
    }
}

impl Error {
    pub(crate) fn new(cause: Cause, policy: Arc<Policy>, key: &Key) -> Self {
        let key = key.clone();
        Self {
            inner: Arc::new(Inner { cause, policy, key }),
        }
    }

    /// The place of a request of this key is lost.
    pub(crate) fn lost_place((policy, key): (Arc<Policy>, Key)) -> Self {
        Self::new(Cause::LostPlace, policy, &key)
    }

    /// The key; empty if the request has none.
    pub fn key(&self) -> &Key {
        &self.inner.key
    }

    /// The name of the policy: of the [rule](crate::rules), or of the [limiter](crate::LimiterBuilder::name) if it has one.
    pub fn policy_name(&self) -> Option<&str> {
        self.policy().name()
    }

    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.inner.policy
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.inner.cause
    }

    /// Why the request gets no permit.
    pub fn kind(&self) -> ErrorKind {
        match self.inner.cause {
            Cause::TooLong { .. } => ErrorKind::TooLong,
            Cause::QueueFull { .. } => ErrorKind::QueueFull,
            Cause::InvalidCost(_) => ErrorKind::InvalidCost,
            Cause::InvalidShare(_) => ErrorKind::InvalidShare,
            Cause::EmptyKey => ErrorKind::EmptyKey,
            Cause::NoKey(_) => ErrorKind::NoKey,
            Cause::Store(_) => ErrorKind::Store,
            Cause::LostPlace => ErrorKind::LostPlace,
        }
    }

    /// Returns true if a limit refuses the request: it would [wait too long](ErrorKind::TooLong), or the
    /// [queue is full](ErrorKind::QueueFull).
    pub fn is_limited(&self) -> bool {
        matches!(self.kind(), ErrorKind::TooLong | ErrorKind::QueueFull)
    }

    /// Returns true if the store did not answer, or with an error; the [`StoreError`] is the source.
    ///
    /// The store may have recorded a departure: see [`StoreError::is_outcome_unknown`].
    pub fn is_store(&self) -> bool {
        self.kind() == ErrorKind::Store
    }

    /// Finds this error in an error or its sources, such as an error of reqwest-middleware, also below a retry.
    ///
    /// ```
    /// fn is_limited(error: &reqwest_middleware::Error) -> bool {
    ///     tower_throttle::Error::find(error).is_some_and(|error| error.is_limited())
    /// }
    /// ```
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |&error| error.source())
            .find_map(|error| error.downcast_ref())
    }

    /// How long the request was expected to wait in all, if that is [too long](ErrorKind::TooLong): with the time that it had
    /// waited already.
    pub fn wait(&self) -> Option<Duration> {
        match self.inner.cause {
            Cause::TooLong { waited, snapshot } => Some(waited + snapshot.delay()),
            _ => None,
        }
    }

    /// The state of the key when the request [was limited](Self::is_limited).
    ///
    /// If the [queue was full](ErrorKind::QueueFull), it is that of the last answer of the store; `None` before the first one.
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
            Cause::InvalidCost(problem) | Cause::InvalidShare(problem) => f.write_str(problem),
            Cause::EmptyKey => f.write_str("the key of the rate limit is empty"),
            Cause::NoKey(it) => write!(f, "the request has no key: {}", it.reason),
            Cause::Store(error) if error.is_outage() => {
                f.write_str("the store is out, and cannot say when the request may depart")
            }
            Cause::LostPlace => f.write_str(
                "the lease of a request in progress has ended, as the store could not renew it",
            ),
            Cause::Store(_) => f.write_str("the call to the store failed"),
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

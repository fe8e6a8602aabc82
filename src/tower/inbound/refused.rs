//! A request that is refused: [`Refused`].

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::acquire::{Cause, Error};
use crate::headers::Standing;
use crate::key::Key;
use crate::permit::Limited;
use crate::policy::Policy;

/// Why a request is refused, or would be, if the layer did [more than observe](Self::is_enforced).
///
/// The extensions of the answer hold it, for the layers outside.
#[derive(Debug, Clone)]
pub struct Refused {
    key: Option<Key>,
    policy: Arc<Policy>,
    error: Arc<Error>,
    limited: Option<Limited>,
    missing: Option<Cow<'static, str>>,
    pub(super) enforced: bool,
}

impl Refused {
    /// Whether the key is over its limit.
    pub fn is_limited(&self) -> bool {
        self.error.is_limited()
    }

    /// Returns true if the queue of the key already held `max_waiting` requests.
    pub fn is_queue_full(&self) -> bool {
        self.error.is_queue_full()
    }

    /// Whether the request has no key, or an empty one.
    pub fn is_missing_key(&self) -> bool {
        self.missing.is_some()
    }

    /// Whether the store did not answer. The [error](Self::error) has the reason, which clients need not know.
    pub fn is_store(&self) -> bool {
        self.error.is_store()
    }

    /// Whether the request is refused in fact, and does not pass because the layer only
    /// [observes](super::InboundLayer::observe_only).
    pub fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// The key; `None` if the request has none.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The policy that the request is refused by.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The name of the policy in the header fields: its [label](crate::Policy::label).
    pub fn policy_name(&self) -> &str {
        self.policy.label()
    }

    /// How long until a request may depart, if no other comes before it; `None` if the status is not 429. It may be early
    /// if other requests wait.
    pub fn delay(&self) -> Option<Duration> {
        self.limited.as_ref().map(Limited::delay)
    }

    /// How long until all units of the quotas are available again; `None` if the delay is.
    pub fn reset(&self) -> Option<Duration> {
        self.limited.as_ref().map(Limited::reset)
    }

    /// The reason of the [`KeyExtractor`](crate::key::KeyExtractor), if it refused the request.
    pub fn missing_key(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The status of the default answer: 429 if the key is over its limit or the queue is full, 400 without a key, and 503
    /// if the store does not answer.
    pub fn status(&self) -> StatusCode {
        if self.is_limited() || self.is_queue_full() {
            StatusCode::TOO_MANY_REQUESTS
        } else if self.is_missing_key() {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }

    /// A request whose key gets no permit, with the state of the key if that is known.
    pub(super) fn new(
        key: Key,
        policy: Arc<Policy>,
        error: Error,
        limited: Option<Limited>,
    ) -> Self {
        let is_empty = error.is_invalid_key();
        Self {
            key: (!is_empty).then_some(key),
            policy,
            error: Arc::new(error),
            limited,
            missing: is_empty.then_some("the request has an empty key".into()),
            enforced: true,
        }
    }

    /// A request without a key, for this reason.
    pub(super) fn no_key(policy: Arc<Policy>, reason: Cow<'static, str>) -> Self {
        Self {
            key: None,
            policy,
            error: Arc::new(Cause::NoKey(reason.clone()).into()),
            limited: None,
            missing: Some(reason),
            enforced: true,
        }
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        let more = self.delay();
        more.map(|_| Standing { remaining: 0, more })
    }
}

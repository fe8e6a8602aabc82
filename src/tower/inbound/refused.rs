//! Requests that are refused, and what users choose for them: [`Refused`], [`FailureMode`] and [`Refusal`].

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

use crate::acquire::{Cause, Error};
use crate::algorithm::Costs;
use crate::key::{Key, NoKeyCause};
use crate::policy::Policy;
use crate::snapshot::Snapshot;

/// Why a request is refused, or would be if that was [enforced](Self::is_enforced).
///
/// The extensions of the answer hold it, for the layers outside.
#[derive(Debug, Clone)]
pub struct Refused {
    pub(super) key: Option<Key>,
    pub(super) error: Error,
    /// The cost of the request in each unit.
    pub(super) costs: Costs,
    pub(super) is_enforced: bool,
    /// The status of the answer, if only the requests in progress are too many.
    pub(super) busy: Option<StatusCode>,
}

impl Refused {
    /// The reason: the key is [over its limit](Error::is_limited), the [queue is full](crate::ErrorKind::QueueFull), the
    /// request [has no key](crate::ErrorKind::NoKey), an [empty one](crate::ErrorKind::EmptyKey), an [invalid
    /// cost](crate::ErrorKind::InvalidCost) or an [invalid share](crate::ErrorKind::InvalidShare), the [store](Error::is_store)
    /// did not answer, or the request has [lost its place](crate::ErrorKind::LostPlace). Clients need not know the last two.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// False if the request passes: the layer only [observes](crate::ThrottleLayer::observe_only), or
    /// [fails open](super::FailureMode::Open).
    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// The key; `None` if the request has none.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The policy that refuses the request. The header fields name it by its [label](Policy::label).
    pub fn policy(&self) -> &Arc<Policy> {
        self.error.policy()
    }

    /// Returns true if only the [requests in progress](crate::Quota::concurrent) are too many. A full queue shows
    /// that only if the policy limits nothing else. A pause of such a policy looks like that in its last second.
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// How long until a request may depart, if no other comes before it. It may be early if other requests wait. `None` if no
    /// limit refuses the request, or if the queue is full and the store has not answered for the key yet.
    pub fn delay(&self) -> Option<Duration> {
        self.error.snapshot().map(Snapshot::delay)
    }

    /// What is wrong with the request, if the status is 400 or 401: the [`KeyExtractor`](crate::key::KeyExtractor) says why it
    /// has no key, or its cost can never depart.
    pub fn problem(&self) -> Option<&str> {
        match self.error.cause() {
            Cause::NoKey(no_key) if no_key.cause != NoKeyCause::Server => Some(&no_key.reason),
            Cause::InvalidCost(problem) | Cause::InvalidShare(problem) => Some(problem),
            Cause::EmptyKey => Some("the request has an empty key"),
            _ => None,
        }
    }

    /// The status of the default answer: 429 if the key is over its limit or the queue is full; 503 or [another
    /// one](crate::ThrottleLayer::busy_status) if too many requests are [in progress](Self::is_busy); 503 if the store does not
    /// answer or the place is lost; 400 if the cost can never depart or the share is invalid; 400, 401 or 500 without a key, by
    /// the [cause](crate::key::NoKeyCause).
    pub fn status(&self) -> StatusCode {
        match self.error.cause() {
            Cause::TooLong { .. } | Cause::QueueFull { .. } => {
                self.busy.unwrap_or(StatusCode::TOO_MANY_REQUESTS)
            }
            Cause::NoKey(no_key) => match no_key.cause {
                NoKeyCause::Request => StatusCode::BAD_REQUEST,
                NoKeyCause::Credential(_) => StatusCode::UNAUTHORIZED,
                NoKeyCause::Server => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Cause::EmptyKey | Cause::InvalidCost(_) | Cause::InvalidShare(_) => {
                StatusCode::BAD_REQUEST
            }
            Cause::Store(_) | Cause::LostPlace => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The treatment of a server's requests if the store fails; see
/// [`ThrottleLayer::inbound`](crate::ThrottleLayer::inbound).
///
/// The limiter's [`Outage`](crate::Outage) comes first. The failure mode is for the requests that it does not decide:
///
/// | while the store is out | `FailureMode::Open` | `FailureMode::Closed` |
/// | --- | --- | --- |
/// | [`Outage::Deny`](crate::Outage::Deny), the default | passes | is answered with 503 |
/// | [`Outage::Local`](crate::Outage::Local) | spends this process's share; passes if it costs more than that | spends this process's share; is answered with 503 if it costs more |
/// | [`Outage::Allow`](crate::Outage::Allow) | passes | passes |
///
/// With a [`max_wait`](crate::ThrottleLayer::max_wait) and `Outage::Deny`, requests first wait for the store. Other errors of
/// the store, such as a missing right or a call outside of a tokio runtime, are no outage: there, the failure mode decides alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureMode {
    /// Fail-open: the request passes and is not counted. Its extensions and those of its response hold the [`Refused`].
    Open,
    /// Fail-closed: the request is answered with 503.
    Closed,
}

/// Answers a request that is refused, in place of the service.
///
/// Closures do, whatever status and body they choose. `B` is the body of the service's responses. The layer adds its headers to
/// their answer:
///
/// ```
/// use axum::{body::Body, http::Response};
/// use tower_throttle::tower::inbound::Refused;
/// use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
///
/// # fn main() -> Result<(), tower_throttle::BuildError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let layer = ThrottleLayer::new(limiter)
///     .inbound(key::client_ip(), FailureMode::Open)
///     .refusal(|refused: &Refused| {
///         let mut response = Response::new(Body::from(match refused.delay() {
///             Some(delay) => format!("come back in {delay:?}"),
///             None => "not now".to_owned(),
///         }));
///         *response.status_mut() = refused.status();
///         response
///     });
/// let app: axum::Router = axum::Router::new().layer(layer);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer with a body of type `{B}`",
    note = "`ProblemDetails` needs a body that is `From<String>`; a closure returns an `http::Response<{B}>`"
)]
pub trait Refusal<B> {
    /// The answer to a request that is refused.
    fn answer(&self, refused: &Refused) -> Response<B>;
}

impl<B, F: Fn(&Refused) -> Response<B>> Refusal<B> for F {
    fn answer(&self, refused: &Refused) -> Response<B> {
        self(refused)
    }
}

//! The parts of an inbound layer that users choose: [`FailureMode`], [`Refusal`] and [`ChargeWhen`].

use http::Response;

use super::refused::Refused;

/// The treatment of a server's requests if the store fails; see
/// [`ThrottleLayer::inbound`](crate::ThrottleLayer::inbound).
///
/// The limiter's [`Outage`](crate::Outage) comes first. The failure mode is for the requests that it does not decide:
///
/// | while the store is out | `FailureMode::Open` | `FailureMode::Closed` |
/// | --- | --- | --- |
/// | [`Outage::Deny`](crate::Outage::Deny), the default | passes | is answered with 503 |
/// | [`Outage::Local`](crate::Outage::Local) | spends this process's share | spends this process's share |
/// | [`Outage::Allow`](crate::Outage::Allow) | passes | passes |
///
/// With a [`max_wait`](crate::ThrottleLayer::max_wait) and `Outage::Deny`, requests first wait for the store. Other errors of
/// the store, such as a missing right, are no outage: there, the failure mode decides alone.
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
/// Closures do, whatever status and body they choose. The layer adds its headers to their answer:
///
/// ```
/// use http::Response;
/// use tower_throttle::tower::inbound::Refused;
/// use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
///
/// # fn main() -> Result<(), tower_throttle::BuildError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let layer = ThrottleLayer::new(limiter)
///     .inbound(key::client_ip(), FailureMode::Open)
///     .refusal(|refused: &Refused| {
///         let mut response = Response::new(match refused.delay() {
///             Some(delay) => format!("come back in {delay:?}"),
///             None => "not now".to_owned(),
///         });
///         *response.status_mut() = refused.status();
///         response
///     });
/// # Ok(())
/// # }
/// ```
pub trait Refusal<B> {
    /// The answer to a request that is refused.
    fn answer(&self, refused: &Refused) -> Response<B>;
}

impl<B, F: Fn(&Refused) -> Response<B>> Refusal<B> for F {
    fn answer(&self, refused: &Refused) -> Response<B> {
        self(refused)
    }
}

/// Says, from the response, whether the request counts.
///
/// Closures do: see [`ThrottleLayer::charge_when`](crate::ThrottleLayer::charge_when).
pub trait ChargeWhen<B> {
    /// Whether a request counts that is answered so.
    fn counts(&self, response: &Response<B>) -> bool;
}

impl<B, F: Fn(&Response<B>) -> bool> ChargeWhen<B> for F {
    fn counts(&self, response: &Response<B>) -> bool {
        self(response)
    }
}

/// Every request counts. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryRequest;

impl<B> ChargeWhen<B> for EveryRequest {
    fn counts(&self, _: &Response<B>) -> bool {
        true
    }
}

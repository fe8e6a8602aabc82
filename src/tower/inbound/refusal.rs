//! What is answered instead: [`Refusal`].

use http::Response;

use super::refused::Refused;

/// Answers a request that is refused, in place of the service.
///
/// Closures do, whatever status and body they choose. The layer adds its headers to their answer:
///
/// ```
/// use http::Response;
/// use tower_throttle::tower::inbound::Refused;
/// use tower_throttle::{Limiter, Quota, ThrottleLayer, key};
///
/// # fn main() -> Result<(), tower_throttle::BuildError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let layer = ThrottleLayer::new(limiter)
///     .key(key::header("x-tenant"))
///     .inbound()
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

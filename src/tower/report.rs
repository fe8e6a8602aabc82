//! Reports in responses how requests departed: [`Report`].

use http::Response;

#[cfg(feature = "reqwest")]
use crate::body;
use crate::body::HeldBody;
use crate::charge::Charge;
use crate::permit::{Departure, Place};

/// Adds to a response how its request departed.
///
/// Closures are reports:
///
/// ```
/// use tower_throttle::{Departure, Limiter, Quota, ThrottleLayer, key};
///
/// # fn main() -> Result<(), tower_throttle::BuildError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let layer = ThrottleLayer::new(limiter)
///     .key(key::constant("printer"))
///     .report(|departure: Departure, response: &mut String| {
///         response.push_str(&format!(" (after {:?})", departure.waited()));
///     });
/// # Ok(())
/// # }
/// ```
pub trait Report<R> {
    /// The response of the throttled service.
    type Response;

    /// Adds to the response how its request departed.
    fn report(&self, departure: Departure, response: &mut R);

    /// Adds the charge to the response, if the quotas count something else than requests. Default: it is dropped, which
    /// keeps the estimate.
    fn charge(&self, _: Charge, _: &mut R) {}

    /// The response of the throttled service. It may hold the place of the request, if there is one: if the place is dropped,
    /// the request is no longer in progress.
    fn hold(&self, response: R, place: Option<Place>) -> Self::Response;
}

/// The request is in progress until the response.
impl<R, F: Fn(Departure, &mut R)> Report<R> for F {
    type Response = R;

    fn report(&self, departure: Departure, response: &mut R) {
        self(departure, response);
    }

    fn hold(&self, response: R, _: Option<Place>) -> R {
        response
    }
}

/// Puts the [`Departure`] and the [`Charge`] into the response's extensions. The body holds the place of the request until
/// it has ended. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<B> Report<Response<B>> for InExtensions {
    type Response = Response<HeldBody<B>>;

    fn report(&self, departure: Departure, response: &mut Response<B>) {
        response.extensions_mut().insert(departure);
    }

    fn charge(&self, charge: Charge, response: &mut Response<B>) {
        response.extensions_mut().insert(charge);
    }

    fn hold(&self, response: Response<B>, place: Option<Place>) -> Self::Response {
        response.map(|body| HeldBody::new(body, place))
    }
}

#[cfg(feature = "reqwest")]
impl Report<reqwest::Response> for InExtensions {
    type Response = reqwest::Response;

    fn report(&self, departure: Departure, response: &mut reqwest::Response) {
        response.extensions_mut().insert(departure);
    }

    fn charge(&self, charge: Charge, response: &mut reqwest::Response) {
        response.extensions_mut().insert(charge);
    }

    fn hold(&self, response: reqwest::Response, place: Option<Place>) -> reqwest::Response {
        body::hold(response, place)
    }
}

/// Reports nothing, so that the response can be of any type. The request is in progress until the response.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReport;

impl<R> Report<R> for NoReport {
    type Response = R;

    fn report(&self, _: Departure, _: &mut R) {}

    fn hold(&self, response: R, _: Option<Place>) -> R {
        response
    }
}

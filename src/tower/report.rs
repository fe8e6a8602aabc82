//! Reports in responses how requests departed: [`Report`].

use crate::charge::Charge;
use crate::departure::Departure;
use crate::feedback::ResponseHead;

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
    /// Adds to the response how its request departed.
    fn report(&self, departure: Departure, response: &mut R);

    /// Adds the charge to the response, if the quotas count something else than requests. Default: it is dropped, which
    /// keeps the estimate.
    fn charge(&self, _: Charge, _: &mut R) {}
}

impl<R, F: Fn(Departure, &mut R)> Report<R> for F {
    fn report(&self, departure: Departure, response: &mut R) {
        self(departure, response);
    }
}

/// Puts the [`Departure`] and the [`Charge`] into the response's extensions. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<R: ResponseHead> Report<R> for InExtensions {
    fn report(&self, departure: Departure, response: &mut R) {
        if let Some(extensions) = response.extensions_mut() {
            extensions.insert(departure);
        }
    }

    fn charge(&self, charge: Charge, response: &mut R) {
        if let Some(extensions) = response.extensions_mut() {
            extensions.insert(charge);
        }
    }
}

/// Reports nothing, so that the response can be of any type.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReport;

impl<R> Report<R> for NoReport {
    fn report(&self, _: Departure, _: &mut R) {}
}

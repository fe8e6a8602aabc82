//! How the caller learns what the limiter did: [`Report`].

use crate::departure::Departure;

/// Tells the caller, through the response, how its request departed.
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
}

impl<R, F: Fn(Departure, &mut R)> Report<R> for F {
    fn report(&self, departure: Departure, response: &mut R) {
        self(departure, response);
    }
}

/// Puts the [`Departure`] into the response's extensions. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<R: Extensible> Report<R> for InExtensions {
    fn report(&self, departure: Departure, response: &mut R) {
        response.extensions_mut().insert(departure);
    }
}

/// Reports nothing, so that the response can be of any type.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unreported;

impl<R> Report<R> for Unreported {
    fn report(&self, _: Departure, _: &mut R) {}
}

/// A response that has extensions.
pub trait Extensible {
    /// The extensions, to add to.
    fn extensions_mut(&mut self) -> &mut http::Extensions;
}

impl<B> Extensible for http::Response<B> {
    fn extensions_mut(&mut self) -> &mut http::Extensions {
        self.extensions_mut()
    }
}

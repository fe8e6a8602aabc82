//! Reports in responses how requests departed: [`Report`].

use http::{Extensions, Response};

use super::body::HeldBody;
use crate::charge::Charge;
use crate::cost::Cost;
use crate::dispatcher::Place;
use crate::feedback;
use crate::permit::{Departure, Permit};

/// Adds to a response how its request departed.
///
/// Closures are reports:
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_throttle::{Departure, Limiter, Quota, ThrottleLayer, key};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tower_throttle::tower::BoxError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let layer = ThrottleLayer::new(limiter)
///     .key(key::constant("printer"))
///     .without_feedback() // limits are read from HTTP responses only
///     .report(|departure: Departure, response: &mut String| {
///         response.push_str(&format!(" after {:?}", departure.waited()));
///     });
///
/// let printer = layer.layer(service_fn(async |page: &'static str| {
///     Ok::<_, std::io::Error>(format!("printed {page}"))
/// }));
/// assert_eq!(printer.oneshot("a page").await?, "printed a page after 0ns");
/// # Ok(())
/// # }
/// ```
pub trait Report<R> {
    /// The response of the throttled service.
    type Response;

    /// Adds to the response how its request was admitted, unless that was exempt.
    fn report(&self, response: R, admission: Option<Admission>) -> Self::Response;
}

/// How a request was admitted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Admission {
    /// How it departed.
    pub departure: Departure,
    /// Its charge, if the quotas count something else than requests. If it is dropped, the estimate counts.
    pub charge: Option<Charge>,
    /// Its place, if there is one. If it is dropped, the request is no longer in progress.
    pub place: Option<Place>,
}

impl Admission {
    /// Corrects the charge, if the actual cost is known.
    pub(super) fn new(permit: &mut Permit, actual: Option<&Cost>) -> Self {
        Self {
            place: permit.take_place(),
            charge: feedback::settle(permit, actual),
            departure: Departure::from(&*permit),
        }
    }

    /// Returns the place.
    pub(super) fn put_into(self, extensions: &mut Extensions) -> Option<Place> {
        extensions.insert(self.departure);
        if let Some(charge) = self.charge {
            extensions.insert(charge);
        }
        self.place
    }
}

/// The request is in progress until the response.
impl<R, F: Fn(Departure, &mut R)> Report<R> for F {
    type Response = R;

    fn report(&self, mut response: R, admission: Option<Admission>) -> R {
        if let Some(Admission { departure, .. }) = admission {
            self(departure, &mut response);
        }
        response
    }
}

/// Puts the [`Departure`] and the [`Charge`] into the response's extensions. The body holds the place of the request until
/// it has ended. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<B> Report<Response<B>> for InExtensions {
    type Response = Response<HeldBody<B>>;

    fn report(&self, mut response: Response<B>, admission: Option<Admission>) -> Self::Response {
        let place = admission.and_then(|it| it.put_into(response.extensions_mut()));
        response.map(|body| HeldBody::new(body, place))
    }
}

#[cfg(feature = "reqwest")]
impl Report<reqwest::Response> for InExtensions {
    type Response = reqwest::Response;

    fn report(
        &self,
        mut response: reqwest::Response,
        admission: Option<Admission>,
    ) -> Self::Response {
        let place = admission.and_then(|it| it.put_into(response.extensions_mut()));
        super::body::hold(response, place)
    }
}

/// Reports nothing, so that the response can be of any type. The request is in progress until the response.
impl<R> Report<R> for () {
    type Response = R;

    fn report(&self, response: R, _: Option<Admission>) -> R {
        response
    }
}

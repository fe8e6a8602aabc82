//! Reports in responses how requests departed: [`Report`].

use http::{Extensions, Response};

use super::body::HeldBody;
use crate::charge::Charge;
use crate::dispatcher::Place;
use crate::permit::{Departure, Permit};

/// The permit of a request that departed, and its charge, if the quotas count something else than requests.
type Admitted<'a> = (&'a mut Permit, Option<Charge>);

/// Adds to a response how its request departed.
pub trait Report<R> {
    /// The response of the throttled service.
    type Response;

    /// Adds to the response how its request was admitted, unless that was exempt.
    fn report(&self, response: R, admitted: Option<Admitted<'_>>) -> Self::Response;
}

/// Adds the [`Departure`] and the [`Charge`] of a request, and returns its place.
pub(super) fn put_into(extensions: &mut Extensions, (permit, charge): Admitted<'_>) -> Place {
    extensions.insert(Departure::from(&*permit));
    if let Some(charge) = charge {
        extensions.insert(charge);
    }
    permit.take_place()
}

/// Puts the [`Departure`] and the [`Charge`] into the response's extensions. The body holds the place of the request until
/// it has ended. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<B> Report<Response<B>> for InExtensions {
    type Response = Response<HeldBody<B>>;

    fn report(&self, mut response: Response<B>, admitted: Option<Admitted<'_>>) -> Self::Response {
        let place = admitted.map(|it| put_into(response.extensions_mut(), it));
        response.map(|body| HeldBody::new(body, place.unwrap_or_default()))
    }
}

#[cfg(feature = "reqwest")]
impl Report<reqwest::Response> for InExtensions {
    type Response = reqwest::Response;

    fn report(
        &self,
        mut response: reqwest::Response,
        admitted: Option<Admitted<'_>>,
    ) -> Self::Response {
        let place = admitted.map(|it| put_into(response.extensions_mut(), it));
        super::body::hold(response, place.unwrap_or_default())
    }
}

/// Reports nothing, so that the response can be of any type. The request is in progress until the response.
impl<R> Report<R> for () {
    type Response = R;

    fn report(&self, response: R, _: Option<Admitted<'_>>) -> R {
        response
    }
}

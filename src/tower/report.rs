//! Reads options from requests, and reports in responses how these departed: [`ReadOptions`] and [`Report`].

use http::{Extensions, Response};

use super::body::HeldBody;
use crate::charge::Charge;
use crate::cost::RequestOptions;
use crate::dispatcher::Place;
use crate::key::RequestHead;
use crate::permit::{Departure, Permit};

/// The permit of a request that departed, and its charge, if the quotas count something else than requests.
type Admitted<'a> = (&'a mut Permit, Option<Charge>);

/// Adds to a response how its request departed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` reports only in HTTP responses, not in `{R}`",
    note = "call `.unreported()` on the layer"
)]
pub trait Report<R> {
    /// The response of the throttled service.
    type Response;

    /// Adds to the response how its request was admitted, unless that was exempt.
    fn report(&self, response: R, admitted: Option<Admitted<'_>>) -> Self::Response;
}

/// Reads the options that a request itself has.
#[diagnostic::on_unimplemented(
    message = "`{Self}` reads options only from HTTP requests, not from `{Q}`",
    note = "call `.unreported()` on the layer"
)]
pub trait ReadOptions<Q> {
    /// Its options.
    fn options(&self, request: &Q) -> RequestOptions;
}

/// Adds the [`Departure`] and the [`Charge`] of a request, and returns its place.
pub(super) fn put_into(extensions: &mut Extensions, (permit, charge): Admitted<'_>) -> Place {
    extensions.insert(Departure::from(&*permit));
    if let Some(charge) = charge {
        extensions.insert(charge);
    }
    std::mem::take(&mut permit.granted.place)
}

/// Reads a [`Cost`](crate::Cost), a [`Priority`](crate::Priority) and a [`Share`](crate::Share) from the request's extensions, and
/// puts the [`Departure`] and the [`Charge`] into the response's. The body holds the place of the request until it has ended. The
/// default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<Q: RequestHead> ReadOptions<Q> for InExtensions {
    fn options(&self, request: &Q) -> RequestOptions {
        let extensions = request.extensions();
        extensions.map_or_else(RequestOptions::default, RequestOptions::of)
    }
}

impl<B> Report<Response<B>> for InExtensions {
    type Response = Response<HeldBody<B>>;

    fn report(&self, mut response: Response<B>, admitted: Option<Admitted<'_>>) -> Self::Response {
        let place = admitted.map(|it| put_into(response.extensions_mut(), it));
        response.map(|body| HeldBody::holding(place.unwrap_or_default(), body))
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

/// Reads nothing, so that the request can be of any type.
impl<Q> ReadOptions<Q> for () {
    fn options(&self, _: &Q) -> RequestOptions {
        RequestOptions::default()
    }
}

/// Reports nothing, so that the response can be of any type. The request is in progress until the response.
impl<R> Report<R> for () {
    type Response = R;

    fn report(&self, response: R, _: Option<Admitted<'_>>) -> R {
        response
    }
}

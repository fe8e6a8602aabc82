//! Reads options from requests, and reports in responses how these departed: [`Report`].

use http::{Extensions, Response};

use super::body::HeldBody;
use crate::charge::Charge;
use crate::cost::RequestOptions;
use crate::dispatcher::Place;
use crate::key::RequestHead;
use crate::permit::{Departure, Permit};

/// The permit of a request that departed, and its charge, if the quotas count something else than requests.
type Admitted<'a> = (&'a mut Permit, Option<Charge>);

/// Reads the options of a request, and adds to its response how it departed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` reports only for HTTP requests and responses, not for `{Q}` and `{A}`",
    note = "call `.unreported()` on the layer"
)]
pub trait Report<Q, A> {
    /// The response of the throttled service.
    type Response;

    /// The options that the request itself has.
    fn options(&self, request: &Q) -> RequestOptions;

    /// Adds to the response how its request was admitted, unless that was exempt.
    fn report(&self, response: A, admitted: Option<Admitted<'_>>) -> Self::Response;
}

/// Adds the [`Departure`] and the [`Charge`] of a request, and returns its place.
pub(super) fn put_into(extensions: &mut Extensions, (permit, charge): Admitted<'_>) -> Place {
    extensions.insert(Departure::from(&*permit));
    if let Some(charge) = charge {
        extensions.insert(charge);
    }
    permit.take_place()
}

/// Reads a [`Cost`](crate::Cost), a [`Priority`](crate::Priority) and a [`Share`](crate::Share) from the request's extensions, and
/// puts the [`Departure`] and the [`Charge`] into the response's. The body holds the place of the request until it has ended. The
/// default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

fn options_of(request: &impl RequestHead) -> RequestOptions {
    let extensions = request.extensions();
    extensions.map_or_else(RequestOptions::default, RequestOptions::of)
}

impl<Q: RequestHead, B> Report<Q, Response<B>> for InExtensions {
    type Response = Response<HeldBody<B>>;

    fn options(&self, request: &Q) -> RequestOptions {
        options_of(request)
    }

    fn report(&self, mut response: Response<B>, admitted: Option<Admitted<'_>>) -> Self::Response {
        let place = admitted.map(|it| put_into(response.extensions_mut(), it));
        response.map(|body| HeldBody::new(body, place.unwrap_or_default()))
    }
}

#[cfg(feature = "reqwest")]
impl<Q: RequestHead> Report<Q, reqwest::Response> for InExtensions {
    type Response = reqwest::Response;

    fn options(&self, request: &Q) -> RequestOptions {
        options_of(request)
    }

    fn report(
        &self,
        mut response: reqwest::Response,
        admitted: Option<Admitted<'_>>,
    ) -> Self::Response {
        let place = admitted.map(|it| put_into(response.extensions_mut(), it));
        super::body::hold(response, place.unwrap_or_default())
    }
}

/// Reads and reports nothing, so that the request and the response can be of any type. The request is in progress until the
/// response.
impl<Q, A> Report<Q, A> for () {
    type Response = A;

    fn options(&self, _: &Q) -> RequestOptions {
        RequestOptions::default()
    }

    fn report(&self, response: A, _: Option<Admitted<'_>>) -> A {
        response
    }
}

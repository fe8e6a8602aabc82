//! The body of a response whose request is in progress: [`HeldBody`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::BoxError;
use crate::acquire::Error;
use crate::dispatcher::Place;

pin_project! {
    /// The body of a response. If a quota [limits](crate::Quota::concurrent) how many requests are in progress, its request is
    /// in progress until the body has ended, has failed or is dropped; an empty one has ended once it was polled.
    ///
    /// With [`Lost::Abort`](crate::Lost::Abort), it fails with an [`Error`](crate::Error) if the place is lost, unless its layer
    /// only [observes](crate::ThrottleLayer::observe_only). Otherwise it is as the body inside.
    #[derive(Debug, Default)]
    pub struct HeldBody<B> {
        #[pin]
        inner: B,
        place: Place,
        // A layer that only observes ends no body.
        pub(super) goes_on_if_lost: bool,
        is_aborted: bool,
    }
}

impl<B> HeldBody<B> {
    /// A body of a request that counts as ended, for example of one that a [`Refusal`](crate::tower::inbound::Refusal) answers.
    pub fn new(inner: B) -> Self {
        Self::holding(Place::default(), inner)
    }

    pub(super) fn holding(place: Place, inner: B) -> Self {
        Self {
            inner,
            place,
            goes_on_if_lost: false,
            is_aborted: false,
        }
    }

    /// The body inside.
    pub fn get_ref(&self) -> &B {
        &self.inner
    }

    /// The body inside, whose request counts as ended.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> Body for HeldBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        if *this.is_aborted {
            return Poll::Ready(None);
        }
        if !*this.goes_on_if_lost
            && let Poll::Ready(lost) = this.place.poll_lost(cx)
        {
            (*this.place, *this.is_aborted) = (Place::default(), true);
            return Poll::Ready(Some(Err(Error::lost_place(lost).into())));
        }
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        let goes_on = matches!(frame, Some(Ok(_))) && !this.inner.is_end_stream();
        if !goes_on {
            *this.place = Place::default();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_aborted || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Lets a layer outside of another one answer with [`ProblemDetails`](crate::tower::inbound::ProblemDetails).
impl<B: From<String>> From<String> for HeldBody<B> {
    fn from(text: String) -> Self {
        Self::new(text.into())
    }
}

/// Moves the place, if there is one, into the body of a response, which holds it until it has ended.
#[cfg(feature = "reqwest")]
pub(super) fn hold(response: reqwest::Response, place: Place) -> reqwest::Response {
    use reqwest::ResponseBuilderExt as _;
    if !place.is_held() {
        return response;
    }
    // The conversion loses the URL.
    let with_url = http::Response::builder()
        .url(response.url().clone())
        .body(());
    let with_url = with_url.expect("nothing else was set").into_parts().0;
    let mut response = http::Response::from(response).map(|body| match body.is_end_stream() {
        true => body,
        false => reqwest::Body::wrap(HeldBody::holding(place, body)),
    });
    response.extensions_mut().extend(with_url.extensions);
    response.into()
}

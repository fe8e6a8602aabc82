use http::{HeaderMap, Response, StatusCode, response::Parts};

/// Shows a reader what it reads of an HTTP response: the head, without the body.
///
/// [`http::Response`] of any body, [`http::response::Parts`] and, with the feature `reqwest`,
/// `reqwest::Response` have one. Implement it for a response type of your own, and
/// [`Headers`](super::Headers) reads that as well:
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderMap, StatusCode};
/// use tower_throttle::feedback::{Advice, Feedback, Headers, ResponseHead};
///
/// struct Answer {
///     code: StatusCode,
///     headers: HeaderMap,
/// }
///
/// impl ResponseHead for Answer {
///     fn status(&self) -> StatusCode {
///         self.code
///     }
///     fn headers(&self) -> &HeaderMap {
///         &self.headers
///     }
/// }
///
/// let mut answer = Answer { code: StatusCode::TOO_MANY_REQUESTS, headers: HeaderMap::new() };
/// answer.headers.insert("retry-after", "20".parse()?);
/// assert_eq!(Headers::new().read(&answer), Advice::pause(Duration::from_secs(20)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub trait ResponseHead {
    /// The status.
    fn status(&self) -> StatusCode;

    /// The headers.
    fn headers(&self) -> &HeaderMap;
}

impl<B> ResponseHead for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

impl ResponseHead for Parts {
    fn status(&self) -> StatusCode {
        self.status
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

#[cfg(feature = "reqwest")]
impl ResponseHead for reqwest::Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

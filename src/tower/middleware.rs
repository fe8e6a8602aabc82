//! Delays the requests of a reqwest client: [`ThrottleMiddleware`].

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};

use super::layer::{Outbound, ThrottleLayer};
use super::report::{InExtensions, Report as _};
use crate::acquire::{Error, unless_lost};
use crate::cost::RequestOptions;
use crate::feedback::{self, Feedback, Headers};
use crate::key::KeyExtractor;
use crate::limiter::ByRules;

/// Delays the requests of a reqwest client until the limiter lets them depart: a [`ThrottleLayer`] is a middleware, too.
///
/// ```
/// use tower_throttle::{Limiter, Quota, ThrottleMiddleware};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(ThrottleMiddleware::new(limiter))
///     .build();
/// # Ok(())
/// # }
/// ```
///
/// If a quota [limits](crate::Quota::concurrent) how many requests are in progress, a request is in progress until the body of
/// its response has ended, has failed or is dropped. Read or drop each body.
///
/// The methods of the layer set its options, except `shared`, `unreported` and `inbound`, which make no middleware. A closure names
/// the type of the requests or responses:
///
/// ```
/// # use tower_throttle::{Limiter, ThrottleMiddleware};
/// # fn example(limiter: Limiter) -> impl reqwest_middleware::Middleware {
/// ThrottleMiddleware::new(limiter)
///     .cost(|request: &reqwest::Request| if request.url().path() == "/search" { 5 } else { 1 })
/// # }
/// ```
///
/// A [`Cost`](crate::Cost), a [`Priority`](crate::Priority) or a [`Share`](crate::Share) in the extensions of a request goes
/// before that of the layer, as by `client.post(url).with_extension(cost)`.
///
/// # Order among middleware
///
/// Put it last, next to the client: then each attempt of a retry needs a permit of its own, little comes between the permit
/// and the request, and the next attempt waits for the end of the pause that the last response announced. A timeout of the
/// client starts after the wait.
///
/// # Redirects
///
/// Redirects that the client follows by itself do not pass the middleware: the request for the new location is sent at
/// once, to any host, and spends no quota. The limits in the last response are applied unless it comes from
/// another host or port. To count each hop, let the client follow none, and send a request for each location:
///
/// ```
/// use reqwest::{header::LOCATION, redirect::Policy};
/// # use tower_throttle::{Limiter, ThrottleMiddleware};
///
/// # async fn example(limiter: Limiter) -> anyhow::Result<reqwest::Response> {
/// let plain = reqwest::Client::builder().redirect(Policy::none()).build()?;
/// let client = reqwest_middleware::ClientBuilder::new(plain)
///     .with(ThrottleMiddleware::new(limiter))
///     .build();
///
/// let mut url = reqwest::Url::parse("https://api.example.com/old")?;
/// for _ in 0..10 {
///     let response = client.get(url).send().await?;
///     let location = response.headers().get(LOCATION);
///     let Some(location) = location.filter(|_| response.status().is_redirection()) else {
///         return Ok(response);
///     };
///     url = response.url().join(location.to_str()?)?;
/// }
/// anyhow::bail!("too many redirects")
/// # }
/// ```
///
/// # Repeats
///
/// Over HTTP/2, the client itself repeats a request up to twice, at once and uncounted, if the server refuses its stream. To
/// count each attempt, build the client with `retry(reqwest::retry::never())`, and add a middleware that retries.
///
/// # Errors
///
/// A request that gets no permit fails with [`reqwest_middleware::Error::Middleware`]. [`Error::find`] finds the
/// [`Error`] in it, also below a retry such as that of `reqwest-retry`:
///
/// ```
/// use tower_throttle::{Error, ErrorKind};
/// # use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
/// # use tower_throttle::{Limiter, Quota, ThrottleMiddleware, key::Extracted};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// # let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
/// # let no_key = |_: &reqwest::Request| Extracted::Refused("for the test".into());
/// # let retry = ExponentialBackoff::builder().build_with_max_retries(1);
/// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
/// #     .with(RetryTransientMiddleware::new_with_policy(retry))
/// #     .with(ThrottleMiddleware::new(limiter).key(no_key))
/// #     .build();
/// # let error = client.get("http://localhost/").send().await.unwrap_err();
/// match Error::find(&error).map(Error::kind) {
///     Some(ErrorKind::TooLong) => println!("it would have had to wait too long"),
///     Some(kind) => println!("no permit: {kind:?}"),
///     None => println!("the request failed: {error}"),
/// }
/// # assert_eq!(Error::find(&error).map(Error::kind), Some(ErrorKind::NoKey));
/// # Ok(())
/// # }
/// ```
pub type ThrottleMiddleware<K = ByRules, F = Headers> = ThrottleLayer<K, Outbound<InExtensions, F>>;

#[async_trait::async_trait]
impl<K, F> Middleware for ThrottleMiddleware<K, F>
where
    K: KeyExtractor<Request> + Send + Sync + 'static,
    F: Feedback<Response> + Send + Sync + 'static,
{
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let options = RequestOptions::of(extensions);
        let Some(acquire) = self.limiter.admit(&self.key, &request, options) else {
            return next.run(request, extensions).await;
        };
        let mut permit = acquire.await.map_err(refused)?;
        let asked = request.url().clone();
        let answered = unless_lost(next.run(request, extensions), |cx| {
            permit.granted.place.poll_lost(cx)
        });
        let answer = answered.await.map_err(refused)?;
        if let Err(error) = &answer
            && self.direction.refunds_unsent
            && error.is_connect()
        {
            permit.forfeit();
            return answer;
        }
        let response = answer?;
        let advice = self.direction.feedback.read(&response);
        let charge = feedback::settle(&permit, advice.cost(), self.limiter.live().is_some());
        // The limits of another host, to which the client was redirected, say nothing of this key.
        let url = response.url();
        let is_same = url.host_str() == asked.host_str() && url.port() == asked.port();
        // The store gets the limits before the caller gets the response, as the next attempt may follow at once.
        if is_same && let Some(applying) = feedback::apply(&permit, &advice) {
            let _ = applying.await;
        }
        Ok(InExtensions.report(response, Some((&mut permit, charge))))
    }
}

/// Names the error as its own source, as the middleware of others may show nothing but the sources of an error.
fn refused(error: Error) -> reqwest_middleware::Error {
    anyhow::Error::new(error.clone()).context(error).into()
}

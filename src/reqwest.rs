//! Delays the requests of a reqwest client: [`ThrottleMiddleware`].

use std::fmt;
use std::sync::Arc;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};

use crate::acquire::{Error, unless_lost};
use crate::body;
use crate::cost::{Cost, RequestOptions};
use crate::feedback::{self, Feedback, Headers, NoFeedback, Settled};
use crate::key::KeyExtractor;
use crate::limiter::Limiter;
use crate::permit::Departure;
use crate::priority::{Priority, Share};

/// Delays requests until the limiter lets them depart.
///
/// Defaults: the [rules](crate::rules) of the limiter decide the policy and the key of a request. Without rules, the key is
/// the request's [host](crate::key::host()). The response's extensions hold the [`Departure`]. The limits that the upstream
/// announces in its [headers](crate::feedback) win over the quotas: after a 429, nothing departs for that key, in any
/// replica, until the upstream accepts requests again.
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
/// another origin. To count each hop, let the client follow none, and send a request for each location:
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
///     let Some(location) = response.headers().get(LOCATION) else {
///         return Ok(response);
///     };
///     url = response.url().join(location.to_str()?)?;
/// }
/// anyhow::bail!("too many redirects")
/// # }
/// ```
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
#[derive(Clone)]
pub struct ThrottleMiddleware {
    limiter: Limiter,
    key: Arc<dyn KeyExtractor<Request> + Send + Sync>,
    /// The functions that were set last go before others.
    options: Vec<Arc<OptionsOf>>,
    feedback: Arc<dyn Feedback<Response> + Send + Sync>,
    refunds_unsent: bool,
}

type OptionsOf = dyn Fn(&Request) -> RequestOptions + Send + Sync;

impl ThrottleMiddleware {
    /// Delays each request by the rules of the limiter, or by the quota of its host.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self {
            key: Arc::new(limiter.by_rules()),
            limiter,
            options: Vec::new(),
            feedback: Arc::new(Headers::new()),
            refunds_unsent: false,
        }
    }

    /// Sets the key, whose quota a request spends. Default: [`Limiter::by_rules`]; any other goes by the last rule of a limiter that
    /// has rules.
    #[must_use]
    pub fn key(mut self, key: impl KeyExtractor<Request> + Send + Sync + 'static) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the cost of each request. Default: 1, or the cost of its rule.
    ///
    /// A [`Cost`] in the request's extensions goes before it, as by `client.post(url).with_extension(cost)`. A request that costs 0, or more than the quotas allow at once, [fails](crate::ErrorKind::InvalidCost).
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota, ThrottleMiddleware};
    /// # fn example(limiter: Limiter) -> ThrottleMiddleware {
    /// ThrottleMiddleware::new(limiter)
    ///     .cost(|request| if request.url().path() == "/search" { 5 } else { 1 })
    /// # }
    /// ```
    #[must_use]
    pub fn cost<C: Into<Cost>>(self, cost: impl Fn(&Request) -> C + Send + Sync + 'static) -> Self {
        self.with(move |request| RequestOptions::default().cost(cost(request)))
    }

    /// Sets which requests of the same key it departs before. Default: [`Priority::Normal`].
    ///
    /// A [`Priority`] in the request's extensions goes before it, as by `client.get(url).with_extension(Priority::High)`.
    #[must_use]
    pub fn priority(self, priority: impl Fn(&Request) -> Priority + Send + Sync + 'static) -> Self {
        self.with(move |request| RequestOptions::default().priority(priority(request)))
    }

    /// Sets the [`Share`] of each request; `None` for none, the default.
    ///
    /// A [`Share`] in the request's extensions goes before it.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Share, ThrottleMiddleware};
    /// # fn example(limiter: Limiter) -> ThrottleMiddleware {
    /// ThrottleMiddleware::new(limiter).share(|request| {
    ///     let tenant = request.headers().get("x-tenant")?.to_str().ok()?;
    ///     Some(Share::new(tenant, 1))
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn share(self, share: impl Fn(&Request) -> Option<Share> + Send + Sync + 'static) -> Self {
        self.with(move |request| RequestOptions {
            share: share(request),
            ..RequestOptions::default()
        })
    }

    fn with(
        mut self,
        options: impl Fn(&Request) -> RequestOptions + Send + Sync + 'static,
    ) -> Self {
        self.options.insert(0, Arc::new(options));
        self
    }

    /// Reads from each response what its request has cost, after [`feedback`](Self::feedback): what was charged in the
    /// units that it names is [corrected](crate::Charge::settle). Default: the estimate stays, unless the caller corrects the
    /// [`Charge`](crate::Charge) in the response's extensions, as for a body that is streamed.
    ///
    /// ```
    /// # use tower_throttle::{Cost, Limiter, ThrottleMiddleware};
    /// # fn example(limiter: Limiter) -> ThrottleMiddleware {
    /// ThrottleMiddleware::new(limiter)
    ///     .cost(|_| Cost::default().of("tokens", 2_000))
    ///     .settle(|response| {
    ///         let tokens = response.headers().get("x-tokens")?.to_str().ok()?.parse().ok()?;
    ///         Some(Cost::default().of("tokens", tokens))
    ///     })
    /// # }
    /// ```
    #[must_use]
    pub fn settle(
        mut self,
        settle: impl Fn(&Response) -> Option<Cost> + Send + Sync + 'static,
    ) -> Self {
        self.feedback = Arc::new(Settled::new(self.feedback, settle));
        self
    }

    /// Gives a departure back if there was no connection, so that nothing was sent. Default: it counts.
    ///
    /// Set it only if the client does not follow redirects (`reqwest::redirect::Policy::none()`) and no middleware behind
    /// this one retries: else an earlier attempt may have been sent before a connection failed.
    #[must_use]
    pub fn refund_unsent(mut self) -> Self {
        self.refunds_unsent = true;
        self
    }

    /// Sets how the upstream's limits are read from its responses. Default: [`Headers`].
    #[must_use]
    pub fn feedback(mut self, feedback: impl Feedback<Response> + Send + Sync + 'static) -> Self {
        self.feedback = Arc::new(feedback);
        self
    }

    /// Reads no limits from responses.
    #[must_use]
    pub fn without_feedback(self) -> Self {
        self.feedback(NoFeedback)
    }
}

#[async_trait::async_trait]
impl Middleware for ThrottleMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let options = self.options.iter().map(|options| options(&request));
        let options = options.fold(RequestOptions::of(extensions), RequestOptions::or);
        let admitted = self.limiter.admit(&*self.key, &request, options);
        let Some(acquire) = admitted.map_err(refused)? else {
            return next.run(request, extensions).await;
        };
        let mut permit = acquire.await.map_err(refused)?;
        let origin = request.url().origin();
        let answered = unless_lost(next.run(request, extensions), |cx| permit.poll_lost(cx));
        let mut response = match answered.await.map_err(refused)? {
            Ok(response) => response,
            Err(error) => {
                if let reqwest_middleware::Error::Reqwest(error) = &error
                    && self.refunds_unsent
                    && error.is_connect()
                {
                    permit.forfeit();
                }
                return Err(error);
            }
        };
        response.extensions_mut().insert(Departure::from(&permit));
        // The response of another host, to which the client was redirected, says nothing of this key.
        let is_of_host = response.url().origin() == origin;
        let cost = is_of_host.then(|| self.feedback.cost(&response)).flatten();
        if let Some(charge) = feedback::settle(&permit, cost) {
            response.extensions_mut().insert(charge);
        }
        let place = permit.take_place();
        // The store gets the limits before the caller gets the response, as the next attempt may follow at once.
        if is_of_host
            && let Some(applying) = feedback::apply(&permit, &self.feedback.read(&response))
        {
            let _ = applying.await;
        }
        Ok(body::hold(response, place))
    }
}

fn refused(error: Error) -> reqwest_middleware::Error {
    reqwest_middleware::Error::middleware(Refused(error))
}

/// Names the error as its source, as the middleware of others may show nothing but the sources of an error.
#[derive(Debug)]
struct Refused(Error);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Debug for ThrottleMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleMiddleware")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

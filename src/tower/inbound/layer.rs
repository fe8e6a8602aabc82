//! Makes services that answer requests over their limit: [`InboundLayer`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tower_service::Service;

use super::headers::{Headroom, write_rate_limit, write_retry_after, write_x_rate_limit};
use super::problem::ProblemDetails;
use super::refused::{FailureMode, Refusal, Refused};
use crate::acquire::{Acquire, Cause, Error, ErrorKind};
use crate::algorithm::Costs;
use crate::charge::Charge;
use crate::cost::{Cost, RequestOptions};
use crate::dispatcher::Place;
use crate::feedback::{self, Applying};
use crate::key::{KeyExtractor, NoKeyCause};
use crate::permit::Permit;
use crate::policy::Policy;
use crate::quota::{Algorithm, CONCURRENT, Quota, REQUESTS};
use crate::tower::ThrottleLayer;
use crate::tower::body::HeldBody;
use crate::tower::future::{Departed, Direction};
use crate::tower::report::put_into;

/// Answers requests over the limit with 429, or with 503 if only too many are [in progress](crate::Quota::concurrent); made by
/// [`ThrottleLayer::inbound`](crate::ThrottleLayer::inbound).
///
/// Defaults: it answers at once, with `RateLimit-Policy`, `RateLimit` and `Retry-After`, without
/// `X-RateLimit-*`, and with [problem details](ProblemDetails) as the body; every request counts.
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().quota(Quota::per_minute(1)).build()?;
/// let service = ServiceBuilder::new()
///     .layer(ThrottleLayer::new(limiter).inbound(key::constant("all"), FailureMode::Closed))
///     .service(service_fn(|_: http::Request<()>| async {
///         Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
///     }));
///
/// let response = service.clone().oneshot(http::Request::new(())).await?;
/// assert_eq!(response.headers()["ratelimit-policy"], r#""1/m";q=1;w=60"#);
/// assert_eq!(response.headers()["ratelimit"], r#""1/m";r=0"#);
///
/// let response = service.oneshot(http::Request::new(())).await?;
/// assert_eq!(response.status(), 429);
/// assert_eq!(response.headers()["retry-after"], "61");
/// # Ok(())
/// # }
/// ```
///
/// A minute is 61 seconds here, as the [guard](crate::LimiterBuilder::guard) comes on top of the window,
/// and seconds are rounded up.
pub type InboundLayer<K, F = ProblemDetails> = ThrottleLayer<K, Inbound<F>>;

/// The part of an [`InboundLayer`] that only a server needs.
#[derive(Clone)]
pub struct Inbound<F = ProblemDetails> {
    refusal: F,
    options: Options,
}

/// If only a place is missing, the delay is the time after which to ask again: at most so long.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The settings without a type parameter.
#[derive(Clone)]
struct Options {
    failure_mode: FailureMode,
    max_wait: Duration,
    rate_limit_headers: bool,
    retry_after: bool,
    busy_status: StatusCode,
    x_rate_limit_headers: bool,
    observe_only: bool,
    on_refused: Option<OnRefused>,
    charge_when: Option<ChargeWhen>,
}

type OnRefused = Arc<dyn Fn(&Refused) + Send + Sync>;
type ChargeWhen = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

impl Inbound {
    pub(in crate::tower) fn new(failure_mode: FailureMode) -> Self {
        Self {
            refusal: ProblemDetails,
            options: Options {
                failure_mode,
                max_wait: Duration::ZERO,
                rate_limit_headers: true,
                retry_after: true,
                busy_status: StatusCode::SERVICE_UNAVAILABLE,
                x_rate_limit_headers: false,
                observe_only: false,
                on_refused: None,
                charge_when: None,
            },
        }
    }
}

impl<K, F> InboundLayer<K, F> {
    /// Delays requests for at most so long, and answers requests that would have to wait longer with 429 at once; for a
    /// [place](crate::Quota::concurrent), all of them wait so long. Default: no request waits.
    ///
    /// The policy's own [`max_wait`](crate::LimiterBuilder::max_wait) also applies, and its
    /// [`max_waiting`](crate::LimiterBuilder::max_waiting) bounds the queue. If a client hangs up, its request leaves the
    /// queue; over HTTP/1, the server only notices that if nothing that the client sent is unread.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.direction.options.max_wait = max_wait;
        self
    }

    /// Sets whether responses have `RateLimit-Policy` and `RateLimit`. Default: they do.
    pub fn rate_limit_headers(mut self, rate_limit_headers: bool) -> Self {
        self.direction.options.rate_limit_headers = rate_limit_headers;
        self
    }

    /// Sets whether the answers to requests over a limit have `Retry-After`. Default: they do.
    pub fn retry_after(mut self, retry_after: bool) -> Self {
        self.direction.options.retry_after = retry_after;
        self
    }

    /// Sets the status of the answer to a request that is refused only because too many are
    /// [in progress](crate::Quota::concurrent), as [`Refused::is_busy`] says. Default: 503.
    pub fn busy_status(mut self, busy_status: StatusCode) -> Self {
        self.direction.options.busy_status = busy_status;
        self
    }

    /// Sets whether responses have `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`. Default: they do
    /// not.
    ///
    /// They are the same as `q`, `r` and `t`. No standard defines them: the reset is in seconds from now, where others write
    /// a time.
    pub fn x_rate_limit_headers(mut self, x_rate_limit_headers: bool) -> Self {
        self.direction.options.x_rate_limit_headers = x_rate_limit_headers;
        self
    }

    /// Sets the response to requests that are refused. Default: [`ProblemDetails`].
    ///
    /// A closure takes the [`Refused`] and yields a response: see [`Refusal`](super::Refusal).
    pub fn refusal<G>(self, refusal: G) -> InboundLayer<K, G> {
        self.map_all(|key, Inbound { options, .. }| (key, Inbound { refusal, options }))
    }

    /// Sets which requests count, by the heads of their responses. Default: every request counts.
    ///
    /// For example, only failed logins count:
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
    ///
    /// # fn main() -> Result<(), tower_throttle::BuildError> {
    /// let limiter = Limiter::builder().quota(Quota::per_hour(5)).build()?;
    /// let layer = ThrottleLayer::new(limiter)
    ///     .inbound(key::header("x-user"), FailureMode::Closed)
    ///     .charge_when(|head| head.status == StatusCode::UNAUTHORIZED);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Each request takes its units before it departs, so that concurrent attempts keep to the limit, too, and gives them
    /// back if it does not count. If there is no response, because the client hung up or the service failed, the request
    /// counts. The header fields of the response are those from before.
    ///
    /// Use a sliding window or fixed windows for that: [`Spacing`](crate::Algorithm::Spacing),
    /// [`LeakyBucket`](crate::Algorithm::LeakyBucket) and [`Gcra`](crate::Algorithm::Gcra) keep one time, from which only
    /// a part of a departure can be taken back once others have followed it.
    pub fn charge_when(mut self, counts: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.direction.options.charge_when = Some(Arc::new(counts));
        self
    }

    /// Tries out a limit: no request is refused or delayed, and the layer reports which requests it would refuse.
    ///
    /// Requests are decided without a [`max_wait`](Self::max_wait), and count if they are granted. A request that would be
    /// refused, for any reason, passes. Its extensions and those of its response hold the [`Refused`]. If the place of a request
    /// is lost, its work goes on, even with [`Lost::Abort`](crate::Lost::Abort). Responses have no rate limit headers, because
    /// clients might slow down, unless you [turn them on](Self::rate_limit_headers) afterwards. Each request still takes the time
    /// of a call to the store.
    pub fn observe_only(mut self) -> Self {
        self.direction.options.observe_only = true;
        self.direction.options.rate_limit_headers = false;
        self.direction.options.x_rate_limit_headers = false;
        self
    }

    /// Sets a function that is called for each request that is refused, or would be if it was
    /// [enforced](Refused::is_enforced): to log or count it. Default: none.
    ///
    /// ```
    /// # use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
    /// # fn main() -> Result<(), tower_throttle::BuildError> {
    /// # let limiter = Limiter::builder().quota(Quota::per_hour(5)).build()?;
    /// let layer = ThrottleLayer::new(limiter)
    ///     .inbound(key::header("x-user"), FailureMode::Closed)
    ///     .observe_only()
    ///     .on_refused(|refused| eprintln!("{:?}: {}", refused.key(), refused.error()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_refused(mut self, on_refused: impl Fn(&Refused) + Send + Sync + 'static) -> Self {
        self.direction.options.on_refused = Some(Arc::new(on_refused));
        self
    }
}

impl<S, Q, B, K, F> Direction<S, Request<Q>> for InboundLayer<K, F>
where
    S: Service<Request<Q>, Response = Response<B>>,
    K: KeyExtractor<Request<Q>>,
    F: Refusal<B>,
{
    type Response = Response<HeldBody<B>>;
    type Error = S::Error;

    fn admit(&self, request: &Request<Q>) -> Option<Acquire> {
        let max_wait = match self.direction.options.observe_only {
            true => Duration::ZERO,
            false => self.direction.options.max_wait,
        };
        let options = RequestOptions::of(request.extensions());
        let acquire = self.limiter.admit(&self.key, request, options)?;
        Some(acquire.max_wait(max_wait))
    }

    fn refuse(
        &self,
        error: Error,
        waiting: Option<(Acquire, &mut Request<Q>)>,
        departed: &mut Option<Departed>,
    ) -> Option<Result<Self::Response, S::Error>> {
        let Inbound { refusal, options } = &self.direction;
        if error.kind() == ErrorKind::LostPlace && options.observe_only {
            // The response may say that the request does not count.
            return None;
        }
        let permit = departed.take().and_then(Result::ok);
        let (acquire, request) = waiting.unzip();
        let cost = |it: &Acquire| error.policy().costs_of(&it.cost, None).ok();
        let costs = acquire.as_ref().and_then(cost).unwrap_or_default();
        let busy = options.busy_status_of(&error, costs);
        let key = (acquire.map(|it| it.key)).or_else(|| Some(permit?.key));
        let fails_open = error.is_store() && options.failure_mode == FailureMode::Open;
        let refused = Refused {
            key: key.filter(|key| !key.as_str().is_empty()),
            error,
            costs,
            is_enforced: !options.observe_only && !fails_open,
            busy,
        };
        if let Some(on_refused) = &options.on_refused {
            on_refused(&refused);
        }
        if !refused.is_enforced {
            if let Some(request) = request {
                request.extensions_mut().insert(refused.clone());
            }
            *departed = Some(Err(Box::new(refused)));
            return None;
        }
        let (mut head, body) = refusal.answer(&refused).into_parts();
        self.direction.explain(refused, &mut head);
        Some(Ok(Response::from_parts(head, HeldBody::new(body))))
    }

    fn complete(
        &self,
        departed: &mut Option<Departed>,
        response: Response<B>,
    ) -> (Self::Response, Option<Applying>) {
        let (mut head, body) = response.into_parts();
        let place = match departed.take() {
            Some(Ok(permit)) => self.direction.charge(permit, &mut head),
            Some(Err(refused)) => {
                self.direction.explain(*refused, &mut head);
                Place::default()
            }
            None => Place::default(),
        };
        let mut body = HeldBody::holding(place, body);
        body.goes_on_if_lost = self.direction.options.observe_only;
        (Response::from_parts(head, body), None)
    }

    fn fail(&self, _: Option<Departed>, error: S::Error) -> S::Error {
        error
    }
}

impl<F> Inbound<F> {
    /// Adds to the response how the key stands, and charges its request, or gives its departure back if it does not count.
    /// Returns its place.
    fn charge(&self, mut permit: Permit, head: &mut Parts) -> Place {
        let charge_when = self.options.charge_when.as_ref();
        let counts = charge_when.is_none_or(|charge_when| charge_when(head));
        if permit.is_counted() {
            let policy = &permit.handle.policy();
            let remaining = permit.granted.remaining;
            let is_fixed = |it: &Quota| matches!(it.counted_by(), Algorithm::FixedWindow { .. });
            // The quotas may count other units than when the request departed.
            let headroom = (remaining.units == policy.units).then(|| Headroom {
                remaining: remaining.left,
                // In fixed windows alone, more can depart only when all units are available again.
                more: matches!(policy.quotas(), [it] if is_fixed(it)).then(|| permit.reset()),
            });
            self.write(&mut head.headers, policy, headroom);
        }
        // Another layer may charge in the same units, or in others.
        let actual = head.extensions.get::<Cost>().filter(|_| counts);
        let mut charge = feedback::settle(&permit, actual, true);
        if !counts {
            charge = None;
            // Its body may still be in progress.
            Charge::of(&permit).refund();
        }
        put_into(&mut head.extensions, (&mut permit, charge))
    }

    /// Adds to the response why its request was refused, or would have been.
    fn explain(&self, refused: Refused, head: &mut Parts) {
        let headers = &mut head.headers;
        let (delay, policy) = (refused.delay(), refused.policy());
        let may_be_busy = refused.is_busy() || refused.error.kind() == ErrorKind::QueueFull;
        let headroom = refused.error.snapshot().map(|snapshot| Headroom {
            remaining: match policy.units != [REQUESTS] {
                // Other units than the one that refuses it may be left.
                true => snapshot.remaining.left,
                // Fewer than it costs, also if it is refused for another reason.
                false => {
                    let less = refused.costs.0[0].saturating_sub(1);
                    snapshot.remaining.left.0[0].min(less).into()
                }
            },
            // It is not known when requests in progress end.
            more: delay.filter(|_| !may_be_busy || policy.lease().is_none()),
        });
        self.write(headers, policy, headroom);
        if let Some(delay) = delay
            && refused.is_enforced
            && self.options.retry_after
        {
            write_retry_after(headers, delay);
        }
        if let Cause::NoKey(no_key) = refused.error.cause()
            && let NoKeyCause::Credential(scheme) = no_key.cause
            && refused.is_enforced
        {
            let scheme = HeaderValue::from_static(scheme);
            headers.entry(WWW_AUTHENTICATE).or_insert(scheme);
        }
        head.extensions.insert(refused);
    }

    fn write(&self, headers: &mut HeaderMap, policy: &Policy, headroom: Option<Headroom>) {
        if self.options.rate_limit_headers {
            write_rate_limit(headers, policy, headroom);
        }
        if self.options.x_rate_limit_headers
            && let Some(headroom) = headroom
        {
            write_x_rate_limit(headers, policy, headroom);
        }
    }
}

impl Options {
    /// The status if there is no place for a request of this cost, and room for it in all other units. A full queue
    /// shows that only if the policy limits nothing else than requests in progress.
    fn busy_status_of(&self, error: &Error, costs: Costs) -> Option<StatusCode> {
        let policy = error.policy();
        policy.lease()?;
        let is_busy = match error.cause() {
            Cause::TooLong { snapshot, .. } => {
                let mut units = snapshot.all_remaining().zip(costs.0);
                // A pause leaves no place, either.
                snapshot.delay() <= ASK_AGAIN
                    && units.all(|((unit, left), cost)| (unit == CONCURRENT) == (left < cost))
            }
            Cause::QueueFull { .. } => policy.units == [CONCURRENT],
            _ => false,
        };
        is_busy.then_some(self.busy_status)
    }
}

impl<F> fmt::Debug for Inbound<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").finish_non_exhaustive()
    }
}

//! Makes throttled services: [`ThrottleLayer`].

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use tower_layer::Layer;
use tower_service::Service;

use super::BoxError;
use super::future::{Departed, Direction};
use super::inbound::{FailureMode, Inbound, InboundLayer};
use super::report::{InExtensions, ReadOptions, Report};
use super::service::{SharedLayer, Throttle};
use crate::acquire::{Acquire, Error};
use crate::cost::{Cost, RequestOptions};
use crate::feedback::{self, Advice, Applying, Feedback, Headers};
use crate::key::{KeyExtractor, With};
use crate::limiter::{ByRules, Limiter};
use crate::priority::{Priority, Share};

/// Delays requests until the limiter lets them depart.
///
/// Defaults: the [rules](crate::rules) of the limiter decide the policy and the key of a request. Without rules, the key is
/// the request's [host](crate::key::host()). The response's extensions hold the [`Departure`](crate::Departure). The
/// limits that the upstream announces in its [headers](crate::feedback) win over the quotas: after a 429, or a 403 or 503
/// with `Retry-After`, nothing departs for that key, in any replica, until the time that they state. A 429 that says only that
/// no tokens are left holds back the requests that cost tokens. With the feature `reqwest`, the layer is a
/// middleware of `reqwest-middleware`, too: `ThrottleMiddleware`.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_throttle::{Departure, Limiter, Quota, ThrottleLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tower_throttle::tower::BoxError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let service = ServiceBuilder::new()
///     .layer(ThrottleLayer::new(limiter))
///     .service(service_fn(|_: http::Request<()>| async {
///         Ok::<_, std::convert::Infallible>(http::Response::new(()))
///     }));
///
/// let request = http::Request::get("https://api.example.com/").body(())?;
/// let response = service.oneshot(request).await?;
/// assert!(response.extensions().get::<Departure>().is_some());
/// # Ok(())
/// # }
/// ```
///
/// The service has to be `Clone`; for others, see [`shared`](Self::shared). If a quota
/// [limits](crate::Quota::concurrent) how many requests are in progress, a request is in progress until the
/// [body](crate::HeldBody) of its response has ended, or for other protocols until the response. So an
/// `http::Response<B>` becomes an `http::Response<HeldBody<B>>`, whose body fails with a `BoxError`, and a `reqwest::Response`
/// stays one; [`unreported`](Self::unreported) leaves its type as it is.
///
/// # Order among layers
///
/// The service inside is made ready once the request may depart, so a request that waits occupies none of it. A
/// concurrency limit or a buffer belongs inside. A retry belongs outside, so that each attempt needs a permit. A timeout
/// outside includes the wait, and one inside does not. A layer that follows redirects belongs outside, where each hop counts.
/// A `reqwest::Client` follows them inside unless its policy is `redirect::Policy::none()`: then hops are not counted, and a
/// 429 of another host pauses the key.
///
/// If the permit expires before the service is ready, it goes back. Once the service is ready, the request releases it and waits
/// for another permit, in its old place. If that happens again, it keeps the service ready, as it might never depart otherwise.
///
/// So if more requests may depart at once than a concurrency limit of tower lets through, some permits are not used, and
/// requests overtake others that could not use theirs. Use a [quota](crate::Quota::concurrent) for that.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct ThrottleLayer<K = ByRules, D = Outbound> {
    pub(super) limiter: Limiter,
    pub(super) key: K,
    pub(super) direction: D,
}

/// The part of a [`ThrottleLayer`] that only a client needs; [`Inbound`] is that of a server.
#[derive(Debug, Clone)]
pub struct Outbound<R = InExtensions, F = Headers> {
    report: R,
    pub(super) feedback: F,
    pub(super) refunds_unsent: bool,
}

impl ThrottleLayer {
    /// Delays each request by the rules of the limiter, or by the quota of its host.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            key: limiter.by_rules(),
            limiter,
            direction: Outbound {
                report: InExtensions,
                feedback: Headers::new(),
                refunds_unsent: false,
            },
        }
    }

    /// Protects a server instead of delaying a client: requests over the limit are answered with 429, or with 503 if only too
    /// many are [in progress](crate::Quota::concurrent).
    ///
    /// Limit by something that clients cannot choose, such as their [address](crate::key::client_ip()). The host is no such
    /// key, because clients write it. With [rules](crate::rules), the key is [`Limiter::by_rules`], and each rule has a key: with
    /// another key, all requests fall under the last rule.
    ///
    /// The failure mode says what happens to requests while the store cannot be reached.
    ///
    /// ```
    /// use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
    ///
    /// # fn main() -> Result<(), tower_throttle::BuildError> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// let app: axum::Router = axum::Router::new()
    ///     .route("/", axum::routing::get(|| async { "hello" }))
    ///     .layer(ThrottleLayer::new(limiter).inbound(key::client_ip(), FailureMode::Open));
    /// # Ok(())
    /// # }
    /// ```
    pub fn inbound<K>(self, key: K, failure_mode: FailureMode) -> InboundLayer<K> {
        self.map_all(|_, _| (key, Inbound::new(failure_mode)))
    }
}

impl<D> ThrottleLayer<ByRules, D> {
    /// Sets the key, whose quota a request spends. Default: [`Limiter::by_rules`]; any other goes by the last rule of a limiter
    /// that has rules.
    pub fn key<L>(self, key: L) -> ThrottleLayer<L, D> {
        self.map_all(|_, direction| (key, direction))
    }
}

impl<K, D> ThrottleLayer<K, D> {
    /// Sets the cost of each request, after the [`key`](ThrottleLayer::key): a number of requests, or a
    /// [`Cost`](crate::Cost). Default: that of its rule or of the quotas. A `Cost` in the request's extensions
    /// replaces it, in all units, for each layer that the request passes: if several count in different units, set the cost here.
    /// The last call counts, before the options of the key; so it is with priorities and shares.
    ///
    /// A request that costs 0, or more than the quotas allow at once, [fails](crate::ErrorKind::InvalidCost). An inbound
    /// layer answers it with 400.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Quota, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tower_throttle::BuildError> {
    /// let limiter = Limiter::builder().quota(Quota::per_minute(100)).build()?;
    /// let layer = ThrottleLayer::new(limiter)
    ///     .cost(|request: &http::Request<String>| if request.uri().path() == "/search" { 5 } else { 1 });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the handler behind an inbound layer puts a [`Cost`] into the extensions of its response, what was charged in
    /// the units that the quotas count is corrected to that, after the headers were written by the estimate. A handler
    /// that streams its body can correct it later: a layer around this one finds the [`Charge`](crate::Charge) there.
    pub fn cost<Q, C: Into<Cost>>(
        self,
        cost: impl Fn(&Q) -> C + Clone,
    ) -> ThrottleLayer<With<K, impl Fn(&Q) -> RequestOptions + Clone>, D> {
        self.with(move |request: &Q| RequestOptions::default().cost(cost(request)))
    }

    /// Sets which requests of the same key it departs before, after the [`key`](ThrottleLayer::key). Default:
    /// [`Priority::Normal`].
    ///
    /// A [`Priority`] in the request's extensions goes before it. Inbound, requests wait only with a
    /// [`max_wait`](ThrottleLayer::max_wait), so a priority has no effect without one. With it, those of lower levels are refused
    /// first.
    pub fn priority<Q>(
        self,
        priority: impl Fn(&Q) -> Priority + Clone,
    ) -> ThrottleLayer<With<K, impl Fn(&Q) -> RequestOptions + Clone>, D> {
        self.with(move |request: &Q| RequestOptions::default().priority(priority(request)))
    }

    /// Sets the [`Share`] of each request; `None` for none, the default.
    ///
    /// A [`Share`] in the request's extensions goes before it. Inbound, requests wait only with a
    /// [`max_wait`](ThrottleLayer::max_wait), so a share has no effect without one. With it, those of a share that uses more
    /// than its part are refused first.
    pub fn share<Q>(
        self,
        share: impl Fn(&Q) -> Option<Share> + Clone,
    ) -> ThrottleLayer<With<K, impl Fn(&Q) -> RequestOptions + Clone>, D> {
        self.with(move |request: &Q| RequestOptions {
            share: share(request),
            ..RequestOptions::default()
        })
    }

    fn with<Q, W>(self, set: W) -> ThrottleLayer<With<K, W>, D>
    where
        W: Fn(&Q) -> RequestOptions + Clone,
    {
        self.map_all(|key, direction| (With { key, set }, direction))
    }

    pub(super) fn map_all<L, E>(self, change: impl FnOnce(K, D) -> (L, E)) -> ThrottleLayer<L, E> {
        let (key, direction) = change(self.key, self.direction);
        ThrottleLayer {
            limiter: self.limiter,
            key,
            direction,
        }
    }

    /// Accepts a service that is not `Clone`, such as kube's client or any `BoxService`. Set everything else first.
    ///
    /// The service is behind a lock, from when it is made ready for a request until it is called; other requests wait for
    /// the lock in order of arrival. No request holds it while it waits for a permit or for a response.
    ///
    /// ```
    /// use tower::util::BoxService;
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_throttle::{Limiter, Quota, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tower_throttle::BuildError> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// let client = BoxService::new(service_fn(|_: http::Request<()>| async {
    ///     Ok::<_, std::convert::Infallible>(http::Response::new(()))
    /// }));
    /// let service = ServiceBuilder::new()
    ///     .layer(ThrottleLayer::new(limiter).shared())
    ///     .service(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(self) -> SharedLayer<Self> {
        SharedLayer(self)
    }
}

impl<K, R, F> ThrottleLayer<K, Outbound<R, F>> {
    /// Reads from each response what its request has cost, after [`feedback`](Self::feedback): what was charged in the units
    /// that it names is [corrected](crate::Charge::settle_to), or nothing if no quota counts one of them, with a warning. With rules,
    /// units that the rule does not count are ignored. Default: the estimate stays, unless the caller corrects the
    /// [`Charge`](crate::Charge) in the response's extensions, as for a body that is streamed.
    ///
    /// ```
    /// use tower_throttle::{Cost, Limiter, Quota, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tower_throttle::BuildError> {
    /// let limiter = Limiter::builder()
    ///     .quota(Quota::per_minute(600))
    ///     .quota(Quota::per_minute(100_000).unit("tokens"))
    ///     .build()?;
    /// let layer = ThrottleLayer::new(limiter)
    ///     .cost(|request: &http::Request<String>| {
    ///         Cost::default().of("tokens", 500 + request.body().len() as u32 / 4)
    ///     })
    ///     .settle(|response: &http::Response<String>| {
    ///         let tokens = response.headers().get("x-tokens")?.to_str().ok()?.parse().ok()?;
    ///         Some(Cost::default().of("tokens", tokens))
    ///     });
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle<A>(
        self,
        settle: impl Fn(&A) -> Option<Cost> + Clone,
    ) -> ThrottleLayer<K, Outbound<R, impl Fn(&A) -> Advice + Clone>>
    where
        F: Feedback<A> + Clone,
    {
        self.map(|report, feedback| {
            let settled = move |response: &A| {
                let advice = feedback.read(response);
                match settle(response) {
                    Some(cost) => advice.and(Advice::settle(cost)),
                    None => advice,
                }
            };
            (report, settled)
        })
    }

    /// Gives a departure back if the service fails because there was no connection, so that nothing was sent. Default: it
    /// counts.
    ///
    /// It looks for an [`io::Error`] such as a refused connection among the sources of the error. An unreachable host may also
    /// end a connection on which the request was sent, so that counts. A body that a refused connection ends is taken for an unsent
    /// request. As a [`ThrottleMiddleware`](crate::ThrottleMiddleware),
    /// it goes by `is_connect` of the error. Set it only if the service does not follow redirects and does not retry (with
    /// reqwest, `redirect::Policy::none()` and `retry::never()`): else an earlier attempt may have been sent before.
    pub fn refund_unsent(mut self) -> Self {
        self.direction.refunds_unsent = true;
        self
    }

    fn map<P, G>(self, change: impl FnOnce(R, F) -> (P, G)) -> ThrottleLayer<K, Outbound<P, G>> {
        let (report, feedback) = change(self.direction.report, self.direction.feedback);
        ThrottleLayer {
            limiter: self.limiter,
            key: self.key,
            direction: Outbound {
                report,
                feedback,
                refunds_unsent: self.direction.refunds_unsent,
            },
        }
    }
}

/// Feedback that can be replaced: no [`settle`](ThrottleLayer::settle) is lost.
#[diagnostic::on_unimplemented(
    message = "the feedback is set already: call `.unreported()` before it, and `.settle(…)` last"
)]
pub trait Replaceable {}

impl Replaceable for Headers {}
impl Replaceable for () {}

impl<K, R, F: Replaceable> ThrottleLayer<K, Outbound<R, F>> {
    /// Sets how the upstream's limits are read from its responses, before [`settle`](Self::settle). Default: [`Headers`].
    ///
    /// A closure can read responses that are not HTTP.
    pub fn feedback<G>(self, feedback: G) -> ThrottleLayer<K, Outbound<R, G>> {
        self.map(|report, _| (report, feedback))
    }

    /// Reads no limits from responses.
    pub fn without_feedback(self) -> ThrottleLayer<K, Outbound<R, ()>> {
        self.feedback(())
    }

    /// Adds nothing to responses, and reads nothing from them or from the extensions of requests, so that both can be of any
    /// type. A request is in progress until the response, not until the end of its body. A [`feedback`](Self::feedback) that
    /// follows reads the responses.
    pub fn unreported(self) -> ThrottleLayer<K, Outbound<(), ()>> {
        self.map(|_, _| ((), ()))
    }
}

impl<S, K: Clone, D: Clone> Layer<S> for ThrottleLayer<K, D> {
    type Service = Throttle<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle {
            inner,
            layer: Arc::new(self.clone()),
            is_shared: false,
        }
    }
}

impl<S, Q, K, R, F> Direction<S, Q> for ThrottleLayer<K, Outbound<R, F>>
where
    S: Service<Q>,
    S::Error: Into<BoxError>,
    K: KeyExtractor<Q>,
    R: ReadOptions<Q> + Report<S::Response>,
    F: Feedback<S::Response>,
{
    type Response = R::Response;
    type Error = BoxError;

    fn admit(&self, request: &Q) -> Option<Acquire> {
        let options = self.direction.report.options(request);
        self.limiter.admit(&self.key, request, options)
    }

    fn refuse(
        &self,
        error: Error,
        _: Option<(Acquire, &mut Q)>,
        _: &mut Option<Departed>,
    ) -> Option<Result<R::Response, BoxError>> {
        Some(Err(error.into()))
    }

    fn complete(
        &self,
        departed: &mut Option<Departed>,
        response: S::Response,
    ) -> (R::Response, Option<Applying>) {
        let Some(Ok(permit)) = departed else {
            return (self.direction.report.report(response, None), None);
        };
        let advice = self.direction.feedback.read(&response);
        let charge = feedback::settle(permit, advice.cost(), self.limiter.live().is_some());
        let applying = feedback::apply(permit, &advice);
        let response = self
            .direction
            .report
            .report(response, Some((permit, charge)));
        (response, applying)
    }

    fn fail(&self, departed: Option<Departed>, error: S::Error) -> BoxError {
        let error = error.into();
        if let Some(Ok(permit)) = departed
            && self.direction.refunds_unsent
            && was_not_sent(&*error)
        {
            permit.forfeit();
        }
        error
    }
}

/// Whether the cause of an error is that there was no connection.
fn was_not_sent(error: &(dyn StdError + 'static)) -> bool {
    // An open connection can end because its host or network is unreachable.
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused};
    let sources = std::iter::successors(Some(error), |&error| error.source());
    let mut kinds = sources.filter_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    kinds.any(|kind| [AddrNotAvailable, ConnectionRefused].contains(&kind))
}

//! Clients of upstreams on this machine.

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};
use tower::util::BoxCloneSyncService;

use crate::prelude::*;

pub(crate) type Sender = BoxCloneSyncService<(Method, String), reqwest::Response, BoxError>;

pub(crate) const ADAPTERS: [fn(&Limiter) -> Sender; 2] = [
    |limiter| by_middleware(ThrottleMiddleware::new(limiter.clone())),
    |limiter| by_layer(ThrottleLayer::new(limiter.clone())),
];

/// The adapters for clients, where all requests have the key `a`.
pub(crate) const OF_ONE_KEY: [fn(&Limiter) -> Sender; 2] = [
    |limiter| by_middleware(ThrottleMiddleware::new(limiter.clone()).key(key::constant("a"))),
    |limiter| by_layer(ThrottleLayer::new(limiter.clone()).key(key::constant("a"))),
];

pub(crate) fn by_middleware(throttle: impl Middleware) -> Sender {
    let client = throttled(throttle);
    BoxCloneSyncService::new(service_fn(move |(method, url): (Method, String)| {
        let sent = client.request(method, url).send();
        async move { sent.await.map_err(BoxError::from) }
    }))
}

pub(crate) fn by_layer<L: Layer<reqwest::Client>>(layer: L) -> Sender
where
    L::Service: Service<reqwest::Request, Response = reqwest::Response, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let service = layer.layer(plain());
    BoxCloneSyncService::new(service.map_request(|(method, url): (_, String)| {
        reqwest::Request::new(method, url.parse().expect("a valid URL"))
    }))
}

pub(crate) async fn get(sender: &Sender, url: String) -> Result<reqwest::Response, BoxError> {
    sender.clone().oneshot((Method::GET, url)).await
}

/// A service that has nothing to say.
pub(crate) async fn served<T>(_: Request<T>) -> Result<Response<String>, Infallible> {
    Ok(Response::default())
}

/// Whatever proxy the environment names.
pub(crate) fn plain() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().build();
    client.expect("a client")
}

pub(crate) fn throttled(throttle: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(plain()).with(throttle).build()
}

//! Clients of upstreams on this machine.

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tower_throttle::ThrottleMiddleware;

/// Whatever proxy the environment names.
pub(crate) fn plain() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().build();
    client.expect("a client")
}

pub(crate) fn throttled(throttle: ThrottleMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(plain()).with(throttle).build()
}

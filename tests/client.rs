//! Clients of upstreams on this machine.

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};

/// Whatever proxy the environment names.
pub(crate) fn plain() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().build();
    client.expect("a client")
}

pub(crate) fn throttled(throttle: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(plain()).with(throttle).build()
}

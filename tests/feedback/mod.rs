//! The limits of an upstream win over the configuration, in every replica.

mod redirects;
mod replicas;
mod services;
mod words;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tower_throttle::ThrottleMiddleware;

/// The upstream is on this machine, whatever proxy the environment names.
fn client(throttle: ThrottleMiddleware) -> ClientWithMiddleware {
    let plain = reqwest::Client::builder().no_proxy().build();
    let client = ClientBuilder::new(plain.expect("a client"));
    client.with(throttle).build()
}

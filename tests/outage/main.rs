//! What becomes of requests while the store is out, by each outage policy, in a time that is paused.

#[path = "../support/mod.rs"]
mod support;

mod allow;
mod deny;
mod local;
mod parts;
mod probes;
mod rest;

use std::time::Duration;

use support::switched::Switched;
use tower_throttle::{Error, Limiter, Outage, Quota};

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

fn limiter(store: &Switched, outage: Outage) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.store(store.clone()).outage(outage);
    builder.build().expect("a valid policy")
}

fn assert_out<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the store is out");
    assert!(error.is_store(), "{error:?}");
    let message = "the store is out, and cannot say when the request may depart";
    assert_eq!(error.to_string(), message);
}

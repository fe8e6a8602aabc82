//! Protects a server: what is over the limit is answered with 429, at once or after a bounded wait.
//!
//! [`ThrottleLayer::inbound`](crate::ThrottleLayer::inbound) makes the layer. It fits axum and any other
//! server of `http` requests, and the error of the service stays what it was, so that an axum service
//! stays infallible.
//!
//! ```
//! use axum::{Router, routing::{get, post}};
//! use tower_throttle::{Limiter, Quota, ThrottleLayer, key};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let all = Limiter::builder().name("all").quota(Quota::per_second(100)).build()?;
//! let reports = Limiter::builder().name("reports").quota(Quota::per_minute(5)).build()?;
//! let tenant = || key::header("x-tenant");
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .route(
//!         "/reports",
//!         post(|| async { "written" })
//!             .layer(ThrottleLayer::new(reports).key(tenant()).inbound()),
//!     )
//!     .layer(ThrottleLayer::new(all).key(tenant()).inbound());
//! # Ok(())
//! # }
//! ```
//!
//! # What is answered
//!
//! | request | answer |
//! | --- | --- |
//! | may depart | the service's, with the headers below; its extensions hold the [`Departure`](crate::Departure) |
//! | is over its limit, or the line is full | 429, with the same headers and `Retry-After` |
//! | has no key | 400, with the reason that the [`KeyExtractor`](crate::key::KeyExtractor) gives |
//! | cannot be decided, as the store does not answer | 503, which does not tell why |
//! | is exempt | the service's, as it is |
//!
//! The body is `application/problem+json` ([RFC 9457]), or [whatever you answer](InboundLayer::refusal).
//! The extensions of such an answer hold the [`Refused`].
//!
//! # Headers
//!
//! `RateLimit-Policy` and `RateLimit` are those of [draft-ietf-httpapi-ratelimit-headers-11]:
//!
//! ```text
//! RateLimit-Policy: "api";q=10, "api:10/s";q=10;w=1, "api:5000/h";q=5000;w=3600
//! RateLimit: "api";r=7
//! ```
//!
//! `"api"` is the policy as a whole, by its [name](crate::LimiterBuilder::name), or else its
//! [id](crate::Policy::id). With one quota, it is that quota. Quotas that hold jointly are listed besides,
//! each as a policy of its own, and the whole allows as much at once as the least of them: how many remain
//! is known of all together, not of each. A window that is no whole number of seconds is left out.
//!
//! - `r` is how many more requests could depart when this one was decided on; no more than `q`, though a
//!   burst may hold more.
//! - `t` is the time by which more can depart, in seconds, rounded up. For a refused request that is when it
//!   could depart itself. For one that was granted by one quota it is a bound: by then, all do again that
//!   the quota allows, the first of them perhaps sooner. For one that was granted by joint quotas it is left
//!   out, as few may remain of one while another takes long until all do.
//! - `Retry-After` is the same as `t`, so never earlier than true and never 0.
//!
//! Where a server has several layers, each adds its items to the two lists. Give their limiters names, by
//! which a client tells them apart. A `Retry-After` that is there stays, whatever the `t` of a layer that let
//! the request in. Of `X-RateLimit-*`, which have room for one limit, those stay that leave less.
//!
//! # Order among layers
//!
//! The verdict comes first, then the service is made ready, and only then it is called: a request that is
//! refused reaches nothing inside. If the service takes longer to get ready than the permit is valid, the
//! slot goes back and another one is asked for once it is, so that the limit holds where the service is
//! called. That is for services that are not always ready, such as those with a limit on concurrency; axum's
//! always are.
//!
//! [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
//! [draft-ietf-httpapi-ratelimit-headers-11]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/

mod answers;
mod charge;
mod future;
mod gate;
mod layer;
mod problem;
mod refusal;
mod refused;
mod service;

pub use self::{
    charge::{Charge, EveryRequest},
    future::ResponseFuture,
    layer::InboundLayer,
    problem::ProblemDetails,
    refusal::Refusal,
    refused::Refused,
    service::Inbound,
};

//! Protects a server: requests over the limit are answered with 429, at once or after a bounded wait.
//!
//! [`ThrottleLayer::inbound`](crate::ThrottleLayer::inbound) makes the layer. It fits axum and any other server of `http`
//! requests. The error type of the service stays as it is, so an axum service stays infallible.
//!
//! ```
//! use axum::{Router, routing::{get, post}};
//! use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let all = Limiter::builder().name("all").quota(Quota::per_second(100)).build()?;
//! let reports = Limiter::builder().name("reports").quota(Quota::per_minute(5)).build()?;
//! let limited = |limiter| ThrottleLayer::new(limiter).inbound(key::client_ip(), FailureMode::Open);
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .route("/reports", post(|| async { "written" }).layer(limited(reports)))
//!     .layer(limited(all));
//! # Ok(())
//! # }
//! ```
//!
//! # Answers
//!
//! | request | answer |
//! | --- | --- |
//! | may depart | the service's, with the headers below; its extensions hold the [`Departure`](crate::Departure) |
//! | is over its limit, or the queue is full | 429, with the same headers and `Retry-After`, once the store has answered for the key |
//! | finds too many [in progress](crate::Quota::concurrent), and no other limit refuses it; or a full queue under a policy that limits nothing else | 503, or [another status](crate::ThrottleLayer::busy_status), with the same headers |
//! | lacks a credential: a bearer token, or a [header whose name looks like a secret's](crate::key::header()) | 401, with `WWW-Authenticate` and the reason |
//! | has no [address](crate::key::client_ip()), as the server is not set up for it | 500; the reason is for [`on_refused`](crate::ThrottleLayer::on_refused) |
//! | has no key for another cause | 400, with the reason that the [`KeyExtractor`](crate::key::KeyExtractor) gives |
//! | has an [invalid cost](crate::ErrorKind::InvalidCost): 0, more than the quotas allow at once, or not in their units; or an [invalid share](crate::ErrorKind::InvalidShare) | 400, with the reason |
//! | cannot be decided, as the store fails | by the [`FailureMode`]: 503 without the reason, or the service's |
//! | loses its place while the handler runs, under [`Lost::Abort`](crate::Lost::Abort) | 503 without the reason, whatever the failure mode |
//! | is exempt | the service's, as it is |
//!
//! The body is `application/problem+json` ([RFC 9457]), or [whatever you answer](crate::ThrottleLayer::refusal).
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
//! `"api"` is the [label](crate::Policy::label) of the policy: its name, or its quotas as text. Quotas that hold jointly
//! are also listed one by one, and `q` of the policy as a whole is then the most that may depart at once. A window that is not a
//! whole number of seconds is left out.
//!
//! A quota that does not count requests has its unit in `qu`, and the policy as a whole has an item for each unit:
//!
//! ```text
//! RateLimit-Policy: "api";q=60, "api:tokens";q=10000;qu="tokens", "api:60/m";q=60;w=60, …
//! RateLimit: "api";r=59, "api:tokens";r=8200
//! ```
//!
//! - `r` is how many more requests could depart when this one was decided; at most `q`, though a burst may hold more. Where only
//!   requests count, that of a refused one is less than its cost.
//! - `t` is the time until more can depart, in seconds, rounded up. For a refused request, it is the time until a request
//!   can depart. If other requests wait, it is an estimate that may be early. For a granted request,
//!   only a single quota with fixed windows has it: the end of the window. With other algorithms, more can depart earlier
//!   than all, and a client that waits for all would not use the quota.
//! - `Retry-After` is the same as `t`, and never 0. If too many requests are in progress, there is no `t`.
//!
//! If a server has several layers, each adds its items to the two lists. Give their limiters names, so that clients can
//! distinguish them. An existing `Retry-After` stays. `X-RateLimit-*` have room for one limit: the lower one stays.
//!
//! # Order among layers
//!
//! The layer decides first, then makes the service ready, and then calls it: a refused request reaches no inner layer. If
//! the service takes longer to get ready than the permit is valid, for instance because of a concurrency limit, the
//! request gives the permit back and asks again once the service is ready. So the limit holds where the service is called.
//! Services of axum are always ready.
//!
//! [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
//! [draft-ietf-httpapi-ratelimit-headers-11]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/

mod headers;
mod layer;
mod problem;
mod refused;

pub use self::{
    layer::{Inbound, InboundLayer},
    problem::ProblemDetails,
    refused::{FailureMode, Refusal, Refused},
};

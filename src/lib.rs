//! Delays requests so that many replicas together never exceed a rate.
//!
//! A [`Limiter`] holds one or more quotas, each "N per W", and hands out permits to depart: at most N
//! in *any* window of length W, across all processes that share its [`store`]. Requests that
//! may not depart yet wait, first come, first served; they fail only by a bound that you
//! set, if the store fails, or if new quotas are below their cost.
//!
//! ```
//! use tower_throttle::{Limiter, Quota};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder()
//!     .quota(Quota::per_second(10))
//!     .quota(Quota::per_hour(5_000))
//!     .build()?;
//!
//! let permit = limiter.acquire("api.example.com").await?;
//! println!("departs after {:?}, {} more may follow", permit.waited(), permit.remaining());
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! | --- | --- |
//! | a reqwest client | [`ThrottleMiddleware`] |
//! | a tower service | [`ThrottleLayer`] |
//! | anything else | [`Limiter::acquire`], [`Limiter::try_acquire`], [`Limiter::run`] |
//! | an axum server, or any tower server of HTTP | [`ThrottleLayer::inbound`] |
//! | a pause for all replicas | [`Limiter::pause`], [`Limiter::resume`] |
//! | while the store is out | [`Outage`], [`FailureMode`] for servers, [`LimiterBuilder::outage`], [`Limiter::health`] |
//! | when the store has lost its state | [`Recovery`], [`LimiterBuilder::recovery`] |
//! | the state of a key, and a fresh start for it | [`Limiter::peek`], [`Limiter::reset`] |
//! | whose quota a request spends | [`key`] |
//! | limits that an upstream announces | [`feedback`] |
//! | choosing quotas, ordering layers, sizing a Redis, trouble | [`guide`] |
//! | how requests are counted, and which way to pick | [`Quota`], [`Algorithm`], [`guide::algorithms`] |
//! | costs, and how they grow | [`guide::performance`] |
//! | coming from another limiter | [`guide::migrating`], [`guide::comparison`] |
//! | the protocol between a process and the store, and how it is checked | [`guide::protocol`] |
//! | many limits in one table, from code or a file | [`rules`], [`LimiterBuilder::rules`] |
//! | rules that change at runtime | [`Limiter::reload`] |
//! | requests that go before others, tenants that divide a quota | [`Priority`], [`Share`], [`guide::priorities`] |
//! | tokens, bytes, points: quotas that count something else than requests | [`Quota::unit`], [`Cost`] |
//! | costs that are known only after the response | [`Charge`] |
//! | the requests and tokens of an LLM provider | [`guide::llm`] |
//! | quotas in a configuration | [`Quota` as text](Quota#as-text), [`BuildError`] |
//! | quotas that change at runtime | [`Limiter::set_quotas`] |
//! | the state that replicas share | [`store::RedisStore`], [`store::Store`] |
//! | the keys in a Redis, and their state | [`store::RedisStore::keys`] |
//! | clusters, sentinels, TLS, rights, failures | [`guide::redis`] |
//! | extra spacing for the network's jitter | [`LimiterBuilder::buffer`] |
//! | errors | [`Error`], [`BuildError`] |
//! | spans, events and metrics, and a dashboard | [`telemetry`] |
//! | a command that shows limits, pauses keys and tries out quotas | [tower-throttle-cli](https://crates.io/crates/tower-throttle-cli) |
//! | faults between a limiter and its Redis | [`guide::faults`] |
//! | tests of your own client, without sleeping and without Redis | [`guide::testing`] |
//!
//! # Words
//!
//! A *grant* is a departure time that the store has recorded, at most 100 ms ahead, or 40 ms plus one and a half round
//! trips if that is more (the *horizon*); a *permit* is the right to depart now,
//! which expires with the *guard*, a few milliseconds later. A *queue* holds the requests of one key that wait in one
//! process. The *buffer* is extra spacing for the jitter between departure and arrival. A *pause* is a time before which
//! nothing departs for a key, in all replicas.
//!
//! # Features
//!
//! | feature | for | default |
//! | --- | --- | --- |
//! | `tower` | [`ThrottleLayer`], [`Throttle`]; servers, too | yes |
//! | `axum` | keys of axum servers: [`key::client_ip`] by the peer, [`key::matched_path`] | |
//! | `reqwest` | [`ThrottleMiddleware`]: the layer as a middleware, keys of `reqwest::Request` | |
//! | `redis` | [`store::RedisStore`] | |
//! | `redis-1` | [`store::RedisStore`] from a client or connection of the crate `redis`, version 1 | |
//! | `redis-cluster` | [`store::RedisStore::connect_cluster`] | |
//! | `redis-sentinel` | [`store::RedisStore::connect_sentinel`] | |
//! | `redis-tls` | `rediss://`, by rustls | |
//! | `tracing` | spans and events: [`telemetry`] | |
//! | `metrics` | counters, gauges and histograms: [`telemetry`] | |
//! | `serde` | `rules::Rules::read`; [`Quota`] in configurations; [`Priority`], [`Outage`], [`Recovery`] and [`Lost`] can be read | |
//! | `test-util` | [`test_util`]: a clock, a store that fails and counts its calls, the history checker | |
//!
//! The crate needs tokio's timer, so it does not support `wasm32-unknown-unknown`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "metrics", feature = "redis-1", feature = "tower")),
    allow(
        dead_code,
        unused_imports,
        reason = "some parts serve only these features"
    )
)]

mod acquire;
mod alarm;
mod algorithm;
mod backoff;
mod charge;
mod clock;
mod cost;
mod dispatcher;
mod error;
#[cfg(feature = "tower")]
pub mod feedback;
mod guard;
pub mod guide;
pub mod key;
mod limiter;
mod lock;
mod permit;
mod policy;
mod priority;
mod queue;
mod quota;
pub mod rules;
mod snapshot;
pub mod store;
#[doc = include_str!("docs/links.md")]
// The tests package compiles its examples.
#[cfg_attr(not(doctest), doc = include_str!("docs/telemetry.md"))]
pub mod telemetry;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(feature = "reqwest")]
pub use self::tower::middleware::ThrottleMiddleware;
#[cfg(feature = "tower")]
pub use self::tower::{HeldBody, Throttle, ThrottleLayer, inbound::FailureMode};
pub use self::{
    acquire::{Acquire, Error, ErrorKind, TryAcquire},
    charge::Charge,
    cost::{Cost, RequestOptions},
    dispatcher::{Health, Place},
    error::BuildError,
    limiter::{ByRules, Limiter, LimiterBuilder},
    permit::{Decision, Departure, Permit},
    policy::{Lost, Outage, Policy, Recovery},
    priority::{Priority, Share},
    quota::{Algorithm, Quota, WindowStart},
    snapshot::{Places, Snapshot},
};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Layers for tower services: [`ThrottleLayer`] delays the requests of a client, and [`inbound`] protects a server.

mod body;
mod future;
pub mod inbound;
mod layer;
#[cfg(feature = "reqwest")]
pub(crate) mod middleware;
mod report;
mod service;
#[cfg(test)]
mod tests;
mod waiting;

pub use self::{
    body::HeldBody,
    future::ResponseFuture,
    layer::{Outbound, ThrottleLayer},
    report::InExtensions,
    service::{Shared, SharedLayer, Throttle},
};

/// The error of a throttled service: the [`Error`](crate::Error) of the limiter, or the error of the service inside.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

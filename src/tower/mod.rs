//! Delays the requests of a tower service: [`ThrottleLayer`] and [`Throttle`]; or protects a server:
//! [`inbound`].

mod cost;
mod future;
pub mod inbound;
mod layer;
mod report;
mod service;
mod shared;
mod waiting;

pub use self::{
    cost::Costed,
    future::ResponseFuture,
    layer::ThrottleLayer,
    report::{InExtensions, NoReport, Report},
    service::Throttle,
    shared::{Shared, SharedLayer},
};

/// What a throttled service fails with: the [`Error`](crate::Error) of the limiter, or whatever
/// the service itself fails with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

//! Delays requests.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod algorithm;
mod clock;
mod departure;
mod error;
mod guard;
pub mod key;
mod limiter;
mod line;
mod permit;
mod policy;
mod quota;
#[cfg(feature = "reqwest")]
mod reqwest;
pub mod store;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(feature = "reqwest")]
pub use self::reqwest::ThrottleMiddleware;
#[cfg(feature = "tower")]
pub use self::tower::{Throttle, ThrottleLayer};
pub use self::{
    acquire::{Acquire, TryAcquire},
    departure::Departure,
    error::{BuildError, Error},
    limiter::{Limiter, LimiterBuilder},
    permit::{Decision, Limited, Permit},
    policy::Policy,
    quota::{Algorithm, Quota},
};

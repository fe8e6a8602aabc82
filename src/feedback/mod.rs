//! What an upstream says of its limits: [`Feedback`] reads it from a response, as [`Advice`].
//!
//! A limiter knows what its own replicas have sent, and the quotas that it was given. Others may spend
//! the upstream's quota too, and the upstream may lower it: that is known only from its responses.
//!
//! | reader | what it reads |
//! | --- | --- |
//! | [`Headers`] | `Retry-After`, `RateLimit`, and what came before it, such as `X-RateLimit-Remaining` |
//! | `()` | nothing |
//! | a closure | [whatever it knows of](Feedback#closures) |
//!
//! ```
//! use std::time::Duration;
//! use tower_throttle::feedback::{Advice, Feedback, Headers};
//!
//! let throttled = http::Response::builder().status(429).header("retry-after", "20").body(()).unwrap();
//! assert_eq!(Headers::new().read(&throttled), Advice::pause(Duration::from_secs(20)));
//!
//! let served = http::Response::builder().header("ratelimit", r#""hour";r=15;t=40"#).body(()).unwrap();
//! assert_eq!(Headers::new().read(&served), Advice::remaining(15, Duration::from_secs(40)));
//! ```

use crate::charge::Charge;
use crate::cost::Cost;
use crate::permit::Permit;
use crate::quota::{CONCURRENT, REQUESTS};

mod advice;
mod apply;
mod headers;
mod limits;
mod lines;
mod number;

pub(crate) use self::apply::{Applying, apply};
pub use self::{advice::Advice, headers::Headers};

/// Reads from a response what the upstream says of its limits.
///
/// # Closures
///
/// Closures are readers, for an upstream that has a way of its own. This upstream states in a header how many requests
/// are left of a quota per minute. Responses without that header are read as usual:
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::feedback::{Advice, Feedback, Headers};
///
/// let others = Headers::new();
/// let feedback = move |response: &http::Response<()>| {
///     let left = response.headers().get("x-quota-left").and_then(|left| left.to_str().ok());
///     match left.and_then(|left| left.parse().ok()) {
///         Some(left) => Advice::remaining(left, Duration::from_secs(60)),
///         None => others.read(response),
///     }
/// };
///
/// let response = http::Response::builder().header("x-quota-left", "5").body(()).unwrap();
/// assert_eq!(feedback.read(&response), Advice::remaining(5, Duration::from_secs(60)));
///
/// let response = http::Response::builder().status(503).header("retry-after", "9").body(()).unwrap();
/// assert_eq!(feedback.read(&response), Advice::pause(Duration::from_secs(9)));
/// ```
///
/// What two readers advise is joined by [`Advice::and`].
pub trait Feedback<R> {
    /// What this response advises.
    fn read(&self, response: &R) -> Advice;
}

impl<R, F: Fn(&R) -> Advice> Feedback<R> for F {
    fn read(&self, response: &R) -> Advice {
        self(response)
    }
}

/// The charge of a request, corrected by what the response says of its cost. `None` if there is nothing else to correct. With
/// `is_partial`, the response may name units that are not counted.
pub(crate) fn settle(permit: &Permit, actual: Option<&Cost>, is_partial: bool) -> Option<Charge> {
    // The actual cost in these units may differ from its estimate.
    let is_estimate = |unit: &&str| ![REQUESTS, CONCURRENT].contains(unit);
    let units = permit.granted.turn.counters.units;
    let has_units = units.iter().any(is_estimate);
    if actual.is_none() && !has_units {
        return None;
    }
    let charge = Charge::of(permit);
    // If it fails, the estimate counts.
    let settled = actual.map(|actual| match is_partial {
        true => charge.settle_to(&actual.within(units)),
        false => charge.settle_to(actual),
    });
    if let Some(Err(error)) = settled {
        let current = permit.handle.load();
        current.telemetry.unsettled(charge.key(), &error);
    }
    has_units.then_some(charge)
}

/// Reads nothing, so that the response can be of any type.
impl<R> Feedback<R> for () {
    fn read(&self, _: &R) -> Advice {
        Advice::none()
    }
}

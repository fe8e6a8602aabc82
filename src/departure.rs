//! The departure of a request, for the caller that gets the response: [`Departure`].

use std::time::Duration;

use tokio::time::Instant;

use crate::permit::Permit;
use crate::snapshot::until;

/// How a request departed; the adapters put it into the extensions of its response.
///
/// ```
/// # use tower_throttle::Departure;
/// # fn example(response: http::Response<()>) {
/// if let Some(departure) = response.extensions().get::<Departure>() {
///     println!("waited {:?}, {} more could go", departure.waited(), departure.remaining());
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    waited: Duration,
    remaining: u32,
    reset: Instant,
}

impl Departure {
    /// How long the request waited for its permit; of several attempts, the last.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How many more requests of cost 1 could have departed at once when this one was granted.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long from now until all units of the quotas are available again.
    #[must_use]
    pub fn reset(&self) -> Duration {
        until(Some(self.reset), Instant::now())
    }
}

impl From<&Permit> for Departure {
    #[inline]
    fn from(permit: &Permit) -> Self {
        Self {
            waited: permit.waited(),
            remaining: permit.remaining(),
            reset: permit.granted.resets(),
        }
    }
}

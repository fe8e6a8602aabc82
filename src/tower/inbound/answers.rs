//! The answers of an inbound layer: [`Refusal`], [`Charge`], and [`Answers`], which applies them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};

use super::refused::Refused;
use crate::departure::Departure;
use crate::headers::{Standing, write_rate_limit, write_retry_after, write_x_rate_limit};
use crate::permit::Permit;
use crate::policy::Policy;

/// Answers a request that is refused, in place of the service.
///
/// Closures do, whatever status and body they choose. The layer adds its headers to their answer:
///
/// ```
/// use http::Response;
/// use tower_throttle::tower::inbound::Refused;
/// use tower_throttle::{Limiter, Quota, ThrottleLayer, key};
///
/// # fn main() -> Result<(), tower_throttle::BuildError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// let layer = ThrottleLayer::new(limiter)
///     .key(key::header("x-tenant"))
///     .inbound()
///     .refusal(|refused: &Refused| {
///         let mut response = Response::new(match refused.delay() {
///             Some(delay) => format!("come back in {delay:?}"),
///             None => "not now".to_owned(),
///         });
///         *response.status_mut() = refused.status();
///         response
///     });
/// # Ok(())
/// # }
/// ```
pub trait Refusal<B> {
    /// The answer to a request that is refused.
    fn answer(&self, refused: &Refused) -> Response<B>;
}

impl<B, F: Fn(&Refused) -> Response<B>> Refusal<B> for F {
    fn answer(&self, refused: &Refused) -> Response<B> {
        self(refused)
    }
}

/// Says, from the response, whether the request counts.
///
/// Closures do: see [`InboundLayer::charge_when`](super::InboundLayer::charge_when).
pub trait Charge<B> {
    /// Whether a request counts that is answered so.
    fn counts(&self, response: &Response<B>) -> bool;
}

impl<B, F: Fn(&Response<B>) -> bool> Charge<B> for F {
    fn counts(&self, response: &Response<B>) -> bool {
        self(response)
    }
}

/// Every request counts. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryRequest;

impl<B> Charge<B> for EveryRequest {
    fn counts(&self, _: &Response<B>) -> bool {
        true
    }
}

/// What an inbound layer is set to.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) max_wait: Duration,
    pub(super) rate_limit_headers: bool,
    pub(super) retry_after: bool,
    pub(super) x_rate_limit_headers: bool,
    pub(super) observe_only: bool,
    pub(super) on_refused: Option<OnRefused>,
}

type OnRefused = Arc<dyn Fn(&Refused) + Send + Sync>;

/// The answers of all services of a layer.
pub(super) struct Answers<F, C> {
    pub(super) options: Options,
    pub(super) refusal: F,
    pub(super) charge: C,
}

impl<F, C> Answers<F, C> {
    /// Reports a request that is refused, or yields it where it passes nevertheless.
    pub(super) fn decide<B>(&self, mut refused: Refused) -> Result<Response<B>, Refused>
    where
        F: Refusal<B>,
    {
        refused.enforced = !self.options.observe_only;
        if let Some(on_refused) = &self.options.on_refused {
            on_refused(&refused);
        }
        if !refused.is_enforced() {
            return Err(refused);
        }
        let mut response = self.refusal.answer(&refused);
        self.tell(refused, &mut response);
        Ok(response)
    }

    /// Adds to the response why its request was refused, or would have been.
    pub(super) fn tell<B>(&self, refused: Refused, response: &mut Response<B>) {
        let headers = response.headers_mut();
        self.write(headers, refused.policy(), refused.standing());
        if let Some(delay) = refused.delay()
            && refused.is_enforced()
            && self.options.retry_after
        {
            write_retry_after(headers, delay);
        }
        response.extensions_mut().insert(refused);
    }

    /// Adds the departure to the response, and gives it back if the response does not count.
    pub(super) fn settle<B>(&self, permit: Permit, response: &mut Response<B>)
    where
        C: Charge<B>,
    {
        let standing = Standing {
            remaining: permit.remaining(),
            // Of joint quotas, what remains and when all does may be of different ones.
            more: (permit.current.policy.quotas().len() == 1).then(|| permit.reset()),
        };
        let counts = self.charge.counts(response);
        if permit.is_counted() {
            self.write(
                response.headers_mut(),
                &permit.current.policy,
                Some(standing),
            );
        }
        response.extensions_mut().insert(Departure::from(&permit));
        if !counts {
            permit.forfeit();
        }
    }

    fn write(&self, headers: &mut HeaderMap, policy: &Policy, standing: Option<Standing>) {
        if self.options.rate_limit_headers {
            write_rate_limit(headers, policy, standing);
        }
        if self.options.x_rate_limit_headers
            && let Some(standing) = standing
        {
            write_x_rate_limit(headers, policy, standing);
        }
    }
}

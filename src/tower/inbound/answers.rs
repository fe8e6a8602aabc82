//! What an inbound layer is set to, and what it makes of each answer: [`Options`] and [`Answers`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};

use super::charge::Charge;
use super::refusal::Refusal;
use super::refused::Refused;
use crate::departure::Departure;
use crate::headers::{KnownFields, Standing, write_retry_after};
use crate::permit::Permit;
use crate::policy::Policy;

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

pub(super) type OnRefused = Arc<dyn Fn(&Refused) + Send + Sync>;

/// What all services of a layer answer, and all their responses on the way.
#[derive(Debug)]
pub(super) struct Answers<F, C> {
    options: Options,
    refusal: F,
    charge: C,
    fields: KnownFields,
}

impl<F, C> Answers<F, C> {
    pub(super) fn new(options: Options, refusal: F, charge: C) -> Self {
        Self {
            options,
            refusal,
            charge,
            fields: KnownFields::default(),
        }
    }

    /// How long a request waits.
    pub(super) fn max_wait(&self) -> Duration {
        if self.options.observe_only {
            Duration::ZERO
        } else {
            self.options.max_wait
        }
    }

    /// Reports a request that is refused, or yields it where it passes nevertheless.
    pub(super) fn decide<B>(&self, refused: Refused) -> Result<Response<B>, Refused>
    where
        F: Refusal<B>,
    {
        let refused = if self.options.observe_only {
            refused.only_observed()
        } else {
            refused
        };
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
            more: (permit.policy().quotas().len() == 1).then(|| permit.reset()),
        };
        let counts = self.charge.counts(response);
        if permit.is_counted() {
            self.write(response.headers_mut(), permit.policy(), Some(standing));
        }
        response.extensions_mut().insert(Departure::from(&permit));
        if !counts {
            permit.forfeit();
        }
    }

    fn write(&self, headers: &mut HeaderMap, policy: &Arc<Policy>, standing: Option<Standing>) {
        let Options {
            rate_limit_headers,
            x_rate_limit_headers,
            ..
        } = self.options;
        if !rate_limit_headers && !x_rate_limit_headers {
            return;
        }
        let known = self.fields.of(policy);
        let (_, fields) = &*known;
        if rate_limit_headers {
            fields.write_rate_limit(headers, standing);
        }
        if x_rate_limit_headers && let Some(standing) = standing {
            fields.write_x_rate_limit(headers, standing);
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_wait: Duration::ZERO,
            rate_limit_headers: true,
            retry_after: true,
            x_rate_limit_headers: false,
            observe_only: false,
            on_refused: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("max_wait", &self.max_wait)
            .field("rate_limit_headers", &self.rate_limit_headers)
            .field("retry_after", &self.retry_after)
            .field("x_rate_limit_headers", &self.x_rate_limit_headers)
            .field("observe_only", &self.observe_only)
            .finish_non_exhaustive()
    }
}

//! What a store is asked, and what it answers: [`Reserve`], [`Release`], [`Reserved`].

use std::time::Duration;

use super::{Ask, Evidence, Life, Outcome, Slot, StoreError};
use crate::algorithm::ledger::{Ledger, Outcomes, Terms};
use crate::algorithm::micros;
use crate::clock::Reading;
use crate::key::Key;
use crate::policy::Policy;

/// What a limiter asks of [`Store::reserve`](super::Store::reserve).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Reserve<'a> {
    /// Whose quotas.
    pub key: &'a Key,
    /// Which quotas; all hold jointly.
    pub policy: &'a Policy,
    /// By how much a request may depart later than its slot; see [`record`](Self::record).
    pub guard: Duration,
    /// The least guard with which a slot that was given back is of use: a shorter one would be over
    /// before the answer is here.
    pub least_guard: Duration,
    /// How long the answer is likely to take: a request whose slot comes sooner departs only then.
    pub round_trip: Duration,
    /// No slot may lie before this time on the store's clock.
    pub not_before: u64,
    /// The requests, in their order: slots are handed out in the same. There may be none, where only the
    /// evidence is of interest.
    pub asks: &'a [Ask],
    /// What the store has to know of this key, where recovery is [strict](crate::Recovery::Strict). If it does
    /// not, another [`Life`] begins, in which nothing departs for the evidence's span, and the answer
    /// [says so](Reserved::is_lost). The same holds, but for that, where the store has not known of everything for
    /// so long.
    pub evidence: Option<&'a Evidence>,
}

impl<'a> Reserve<'a> {
    /// One request of cost 1 that waits as long as it takes; set the fields that differ.
    #[must_use]
    pub fn new(key: &'a Key, policy: &'a Policy) -> Self {
        const ONE: &[Ask] = &[Ask {
            count: 1,
            cost: 1,
            max_wait: u64::MAX,
        }];
        Self {
            key,
            policy,
            guard: policy.guard(),
            least_guard: policy.guard(),
            round_trip: Duration::ZERO,
            not_before: 0,
            asks: ONE,
            evidence: None,
        }
    }

    /// What a store records a departure at `at` as, if it reserves it at `now`: later than the slot,
    /// or than the arrival of the answer, by the guard, the [`buffer`](Policy::buffer) and a 50,000th
    /// of the wait, for the drift of clocks. The next departure counts from there. It may be recorded later than
    /// that: the limiter then lets the request depart as much later.
    #[must_use]
    pub fn record(&self, at: u64, now: u64) -> u64 {
        self.terms().record(at, now)
    }

    /// # Errors
    ///
    /// Fails if a cost is 0 or more than the quotas hold: such a request can never depart.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let costs = 1..=self.policy.largest_cost();
        if self.asks.iter().all(|ask| costs.contains(&ask.cost)) {
            Ok(())
        } else {
            let error = StoreError::new("a cost is 0 or more than the quotas hold");
            Err(error.no_outage())
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        let buffer = self.policy.buffer();
        Terms {
            margin: micros(self.guard + buffer),
            least_margin: micros(self.least_guard + buffer),
            not_before: self.not_before,
            round_trip: micros(self.round_trip),
            ..self.policy.terms()
        }
    }
}

/// What a limiter gives back by [`Store::release`](super::Store::release).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Release<'a> {
    /// Whose quotas.
    pub key: &'a Key,
    /// The policy under which the slots were reserved.
    pub policy: &'a Policy,
    /// The slots.
    pub slots: &'a [Slot],
    /// [When the life began](Life::start) under which they were handed out, or 0: under another, the store has
    /// forgotten them, and is not to take them back.
    pub life: u64,
}

impl<'a> Release<'a> {
    /// These slots of this key.
    #[must_use]
    pub fn new(key: &'a Key, policy: &'a Policy, slots: &'a [Slot]) -> Self {
        Self {
            key,
            policy,
            slots,
            life: 0,
        }
    }
}

/// What a store answers to [`Store::reserve`](super::Store::reserve).
#[derive(Debug, Clone)]
pub struct Reserved {
    pub(crate) now: u64,
    pub(crate) clock: Reading,
    pub(crate) life: Option<Life>,
    pub(crate) is_lost: bool,
    pub(crate) outcomes: Outcomes,
    pub(crate) remaining: u32,
    pub(crate) reset: Duration,
}

impl Reserved {
    /// An answer given at `now`, in microseconds on the store's clock: one outcome per request,
    /// how many more requests of cost 1 may depart now, and when all may that the quotas allow.
    #[must_use]
    pub fn new(
        now: u64,
        outcomes: impl IntoIterator<Item = Outcome>,
        remaining: u32,
        reset: Duration,
    ) -> Self {
        Self {
            now,
            clock: Reading::default(),
            life: None,
            is_lost: false,
            outcomes: outcomes.into_iter().collect(),
            remaining,
            reset,
        }
    }

    /// Sets by which clock `now` is, for a store that has several: of which of its servers, and on which
    /// connection to it, as that may lead to another server the next time; `u64::MAX` for one that does not tell when
    /// it does. What is known of one clock says nothing of another. Default: 0 and 0, the only one.
    #[must_use]
    pub fn by_clock(mut self, server: u64, connection: u64) -> Self {
        self.clock = Reading { server, connection };
        self
    }

    /// Sets under which life slots are handed out, where there is [evidence](Reserve::evidence), and whether it began
    /// because the store lacks what there is evidence of. Default: none.
    #[must_use]
    pub fn under(mut self, life: Life, is_lost: bool) -> Self {
        (self.life, self.is_lost) = (Some(life), is_lost);
        self
    }

    /// Under which life slots were handed out, where there was evidence.
    #[must_use]
    pub fn life(&self) -> Option<Life> {
        self.life
    }

    /// Whether the store has found that it lacks what there is evidence of.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The store's time, in microseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// One outcome per request, in the order of the asks.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// How many more requests of cost 1 may depart now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until as many may depart as the quotas allow at most.
    #[must_use]
    pub fn reset(&self) -> Duration {
        self.reset
    }
}

impl Ledger {
    /// What a store that keeps this ledger answers at `now`.
    pub(crate) fn answer(
        &mut self,
        now: u64,
        terms: &Terms,
        asks: &[Ask],
        is_lost: bool,
    ) -> Reserved {
        let outcomes = self.reserve(now, terms, asks);
        Reserved {
            now,
            clock: Reading::default(),
            life: self.life(),
            is_lost,
            outcomes,
            remaining: self.remaining(now, terms),
            reset: Duration::from_micros(self.expires().saturating_sub(now)),
        }
    }
}

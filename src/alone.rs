//! Asking a store that answers at once, while nobody waits for the key: no line, no task, no allocation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Offset;
use crate::epoch::Epoch;
use crate::key::Key;
use crate::line::{Call, Departing, hold};
use crate::permit::Limited;
use crate::store::{Ask, MemoryStore, Outcome, Reserve, Reserved, Slot, StoreError, Terms};
use crate::telemetry::Forfeits;

/// What such a store says. A flat enum, not nested results: to take those apart costs more than the
/// answer.
pub(crate) enum Verdict {
    /// The request may depart.
    Departs(Departing),
    /// It may not.
    Limited(Limited),
    /// The request has to join a line to learn that.
    Unknown,
    /// The store cannot say.
    Failed(Box<StoreError>),
}

impl Epoch {
    /// Asks an embedded store for a slot in its present. The clock is read anew only if other requests
    /// were in the way, as that takes longer than all the rest.
    #[inline(always)]
    pub(crate) fn ask_embedded(
        self: &Arc<Self>,
        store: &MemoryStore,
        key: &Key,
        cost: u32,
        sent: Instant,
    ) -> Verdict {
        if self.keeps(key) {
            return Verdict::Unknown;
        }
        let guard = self.guard.current_micros();
        let buffer = self.policy.buffer_micros();
        let terms = Terms {
            margin: guard + buffer,
            least_margin: self.guard.least_micros() + buffer,
            ..self.policy.terms()
        };
        let (answer, waited) = store.reserve_now(key, &self.policy, &terms, cost, sent);
        let wait = answer.at - answer.now;
        if wait > 0 {
            let limited = Limited::of_micros(wait, answer.remaining, answer.reset);
            return Verdict::Limited(limited);
        }
        let slot = Slot {
            at: answer.at,
            record: answer.record,
            cost,
            receipt: answer.receipt,
        };
        let departing = Departing::at_once(slot, sent, buffer, answer.remaining, answer.reset);
        if departing.is_over(waited.then(Instant::now)) {
            self.take_back(key, departing, Duration::from_micros(guard));
            return Verdict::Unknown;
        }
        self.guard.departed();
        Verdict::Departs(departing)
    }

    /// Asks any other store that [is local](crate::store::Store::is_local).
    pub(crate) fn ask_local(self: &Arc<Self>, key: &Key, cost: u32, sent: Instant) -> Verdict {
        if !self.store.is_local() || self.keeps(key) {
            return Verdict::Unknown;
        }
        let guard = self.guard.current();
        let ask = Ask {
            count: 1,
            cost,
            max_wait: 0,
        };
        let mut reply = self.store.reserve(&Reserve {
            guard,
            least_guard: self.guard.least(),
            asks: &[ask],
            ..Reserve::new(key, &self.policy)
        });
        let Some(reserved) = reply.take_ready() else {
            return Verdict::Unknown;
        };
        let Reserved {
            now,
            mut outcomes,
            remaining,
            reset,
            ..
        } = match reserved {
            Ok(reserved) => reserved,
            Err(error) => return Verdict::Failed(Box::new(error)),
        };
        let received = Instant::now();
        match outcomes.pop() {
            Some(Outcome::Granted(slot)) => {
                let call = Call {
                    sent,
                    received,
                    guard,
                    buffer: self.policy.buffer(),
                    offset: Offset::of_call(sent, sent, received, now),
                    life: 0,
                };
                let departing = Departing::from(hold(slot, now, remaining, reset, call));
                if departing.is_over(Some(received)) {
                    self.take_back(key, departing, guard);
                    return Verdict::Unknown;
                }
                self.guard.departed();
                Verdict::Departs(departing)
            }
            Some(Outcome::Refused { wait }) => {
                let wait = Duration::from_micros(wait);
                Verdict::Limited(Limited::new(wait, remaining, reset))
            }
            None => Verdict::Unknown,
        }
    }

    /// Whether others wait for the key, or it is paused in a way that the store does not know of.
    #[inline(always)]
    fn keeps(&self, key: &Key) -> bool {
        self.lines.contain(key) || self.pauses.are_elsewhere(key, &self.policy)
    }

    /// The slot came too late.
    #[cold]
    fn take_back(self: &Arc<Self>, key: &Key, departing: Departing, guard: Duration) {
        self.guard.forfeited(guard);
        let mut forfeits = Forfeits::default();
        forfeits.add(departing.expires(), Instant::now());
        self.telemetry.forfeited(key, forfeits, &self.guard);
        self.lines.give(self, key, departing.held(guard));
    }
}

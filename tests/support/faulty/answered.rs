//! What a faulty store answers in place of what is so.

use std::time::Duration;

use tower_throttle::Algorithm;
use tower_throttle::key::Key;
use tower_throttle::store::{Notice, Outcome, Release, Reserve, Reserved, Store as _};

use super::heard::allows;
use super::{Fault, Faulty, now, slot};

impl Faulty {
    pub(super) fn distort(
        &self,
        reserve: &Reserve<'_>,
        key: &Key,
        answer: &Reserved,
        stands: Notice,
    ) -> Reserved {
        let mut outcomes = answer.outcomes().to_vec();
        let cut = reserve.guard - self.guard(reserve.guard, reserve.policy);
        let asks = reserve.asks.iter();
        let costs = asks.flat_map(|ask| (0..ask.count).map(|_| ask.cost));
        for (outcome, cost) in outcomes.iter_mut().zip(costs) {
            match (self.fault, outcome) {
                (Fault::RoundsTheWaitUp, Outcome::Refused { wait }) => *wait += 1,
                (Fault::RoundsTheWaitDown, Outcome::Refused { wait }) => *wait -= 1,
                (Fault::RecordsTooEarly, Outcome::Granted(slot)) => slot.record -= 1,
                (
                    Fault::ForgetsTheCost | Fault::ForgetsTheCostUnderAnAllowance,
                    Outcome::Granted(slot),
                ) => slot.cost = cost,
                (_, Outcome::Granted(slot)) => slot.record += cut.as_micros() as u64,
                _ => {}
            }
        }
        if self.has(Fault::HandsOutOneSlotTwice)
            && let [.., before, last] = &mut outcomes[..]
        {
            *last = before.clone();
        }
        let back = self.has(Fault::LetsTimeGoBack) && key.as_str().starts_with("key-3-");
        let is_log = reserve.policy.quotas()[0].counted_by() == Algorithm::SlidingLog;
        let remaining = match self.fault {
            Fault::SaysThatAllRemains => 5,
            Fault::SaysThatOneMoreRemainsUnlessOfALog => answer.remaining() + u32::from(!is_log),
            _ => self.remaining(answer.remaining(), stands),
        };
        let is_short = reserve.policy.quotas()[0].window() < Duration::from_secs(1);
        let early = match self.fault {
            Fault::SaysTheResetTooEarly => Duration::from_micros(1),
            Fault::ForgetsTooLate if is_short => answer.reset() / 2,
            _ => Duration::ZERO,
        };
        Reserved::new(
            answer.now() - u64::from(back),
            outcomes,
            remaining,
            self.reset_in(answer.reset().saturating_sub(early), stands),
        )
    }

    /// What a peek answers.
    pub(super) fn looked(&self, peek: &Reserve<'_>, stands: Notice) -> Reserved {
        let answer = now(self.store.peek(peek));
        let (mut outcomes, mut remaining) = (
            answer.outcomes().to_vec(),
            self.remaining(answer.remaining(), stands),
        );
        match self.fault {
            Fault::PeekRecords => {
                now(self.store.reserve(peek));
            }
            Fault::PeekRecordsWhereAnythingIs if !answer.reset().is_zero() => {
                now(self.store.reserve(peek));
            }
            Fault::PeekAddsTheAsksUp => {
                let taken = now(self.store.reserve(peek));
                let slots: Vec<_> = taken.outcomes().iter().rev().filter_map(slot).collect();
                now(self
                    .store
                    .release(&Release::new(peek.key, peek.policy, &slots)));
                outcomes = taken.outcomes().to_vec();
            }
            Fault::PeekSaysThatNothingRemains => remaining = 0,
            _ => {}
        }
        let hides = match self.fault {
            Fault::PeekIgnoresPauses => stands.paused > 0,
            Fault::PeekIgnoresAllowances => allows(stands),
            _ => false,
        };
        let now = answer.now();
        let outcomes = outcomes.iter().map(|outcome| Outcome::Refused {
            wait: match outcome {
                _ if hides => 0,
                Outcome::Granted(slot) => slot.at - now,
                Outcome::Refused { wait } => *wait,
            },
        });
        let reset = self.reset_in(answer.reset(), stands);
        Reserved::new(now, outcomes, remaining, reset)
    }

    /// What it says that remains where a key stands so.
    fn remaining(&self, remaining: u32, stands: Notice) -> u32 {
        match self.fault {
            Fault::RemainsDuringAPause if stands.paused > 0 => 1,
            Fault::SaysThatMoreIsAllowed if allows(stands) => remaining + 1,
            _ => remaining,
        }
    }

    fn reset_in(&self, reset: Duration, stands: Notice) -> Duration {
        let is_early = self.has(Fault::ResetsBeforeAPauseEnds) && stands.paused > 0;
        if is_early { Duration::ZERO } else { reset }
    }
}

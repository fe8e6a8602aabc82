//! The answers of the store, and their effect on the queues.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Dispatcher;
use super::calls::{Flight, SentCall};
use super::known::{Denied, LONGEST_DENIAL};
use crate::algorithm::{Costs, Taken};
use crate::clock::{Offset, StoreClock};
use crate::cost::Remaining;
use crate::error::StoreError;
use crate::key::Key;
use crate::queue::{Answer, Lease, Standing, Turn};
use crate::store::Answered;
use crate::telemetry;

/// A longer wait without a bound may surprise the user.
const LONG_WAIT: Duration = Duration::from_secs(60);

pub(super) fn left_out() -> StoreError {
    StoreError::new("the store left out an answer").no_outage()
}

impl SentCall {
    fn failed(&self, error: &StoreError) {
        self.queue
            .update(|queue| queue.call_failed(self.number, error, Instant::now()));
    }

    fn lost(&self) {
        self.failed(&StoreError::new("the answer was lost").outcome_unknown());
    }

    /// An answer in local time. The next call is sent earlier by the round trip, so that it arrives in time.
    fn in_local_time(
        &self,
        taken: &Taken,
        offset: &Offset,
        lease: Option<Lease>,
        now: Instant,
    ) -> Answer {
        let guard = self.guard;
        let leased = lease.filter(|_| !self.is_fallback);
        let turns = taken.grants.iter().map(|grant| {
            let from = offset.latest(grant.at);
            let until = offset.earliest(grant.recorded.saturating_sub(self.policy.buffer_micros()));
            let until = until.min(from.max(now) + 2 * guard);
            let turn = Turn {
                from,
                until: leased.map_or(until, |lease| until.min(lease.until)),
                // Nothing that the fallback store has granted is returned to the store.
                recorded: NonZeroU64::new(grant.recorded).filter(|_| !self.is_fallback),
                counters: self.counters,
                units: Costs::default(),
                guard,
            };
            (turn, grant.requests)
        });
        let next_call = (taken.next_call > 0).then(|| {
            let at = offset.earliest(taken.next_call);
            at.checked_sub(self.round_trip).unwrap_or(at)
        });
        Answer {
            turns: turns.collect(),
            expected: taken.expected.iter().map(|&at| offset.latest(at)).collect(),
            uncertainty: offset.uncertainty(),
            next_call,
            lease,
            standing: Standing {
                remaining: Remaining::new(self.policy.units, taken.remaining),
                reset: Some(offset.latest(taken.reset)),
                expected: None,
                overtakes: taken.overtakes,
            },
        }
    }
}

impl Dispatcher {
    pub(super) fn finish(
        self: &Arc<Self>,
        flight: Flight,
        begun: Instant,
        answer: Result<Answered, StoreError>,
    ) {
        let (operation, keys) = match &flight {
            Flight::Ping(..) => (telemetry::Operation::Ping, 0),
            Flight::Call(_, sent) => (telemetry::Operation::Take, sent.len()),
        };
        let now = Instant::now();
        (self.telemetry).called(operation, keys, &answer, now - begun);
        match flight {
            Flight::Ping(shard, key) => self.pinged(shard, &key, answer),
            Flight::Call(shard, sent) => self.apply(Some(shard), sent, answer, now),
        }
    }

    /// Applies the reply to a ping. Without an outage, the queues of the shard are called for from then on.
    fn pinged(self: &Arc<Self>, shard: u64, key: &Key, answer: Result<Answered, StoreError>) {
        let (mut was_out, mut refusal) = (false, None);
        match answer {
            Ok(answered) => {
                let offset = self.observe(&self.clock, &answered);
                for handle in self.handles() {
                    handle.measured(&answered, &offset);
                }
                let ended = self.schedule.lock().outages.ended(shard);
                if let Some((lasted, others)) = ended {
                    self.telemetry.back(shard, lasted, others);
                    was_out = true;
                }
            }
            Err(error) if error.is_outage() || self.outage(shard).is_some() => {
                self.out(shard, key, &error, true);
            }
            Err(error) => refusal = Some(error),
        }
        for queue in self.queues() {
            // In a cluster, keys may have moved to another shard.
            let other = self.store.shard(&queue.key);
            queue.update(|queue| {
                let waits = was_out && (other == shard || queue.waits_for_store());
                if waits && self.outage(other).is_none() {
                    queue.end_outage(Instant::now());
                }
                if let Some(error) = refusal.as_ref().filter(|_| other == shard) {
                    queue.fail_all(error);
                }
            });
        }
    }

    /// Ends a flight whose task was dropped.
    pub(super) fn lost(self: &Arc<Self>, flight: Flight) {
        match flight {
            Flight::Ping(shard, key) => match self.outage(shard) {
                Some(error) => self.out(shard, &key, &error, true),
                None => self.queues().iter().for_each(|queue| queue.apply_changes()),
            },
            Flight::Call(_, sent) => sent.iter().for_each(SentCall::lost),
        }
    }

    /// Applies the answers of a batch to its queues.
    pub(super) fn apply(
        self: &Arc<Self>,
        shard: Option<u64>,
        sent: Vec<SentCall>,
        answer: Result<Answered, StoreError>,
        now: Instant,
    ) {
        let answered = match answer {
            Ok(answered) => answered,
            Err(error) => {
                sent.iter()
                    .for_each(|sent| self.fail_call(shard, sent, &error));
                return;
            }
        };
        let granted = answered.answers.iter().flatten().map(Taken::granted);
        self.schedule.lock().departing = granted.max().unwrap_or(0) as usize;
        let clock = shard.map_or(&self.fallback.clock, |_| &self.clock);
        let offset = self.observe(clock, &answered);
        if shard.is_some() && self.embedded.is_none() {
            let is_same = |one: &SentCall, other: &SentCall| {
                Arc::ptr_eq(&one.queue.handle, &other.queue.handle)
            };
            for sent in sent.chunk_by(is_same) {
                sent[0].queue.handle.measured(&answered, &offset);
            }
        }
        let mut answers = answered.answers.into_iter();
        for sent in sent {
            match answers.next().unwrap_or_else(|| Err(left_out())) {
                Ok(taken) => self.apply_answer(&sent, &taken, &offset, now),
                Err(error) => self.fail_call(shard, &sent, &error),
            }
        }
    }

    /// Applies the answer to a queue's part of a batch.
    fn apply_answer(&self, sent: &SentCall, taken: &Taken, offset: &Offset, now: Instant) {
        let (handle, key) = (&sent.queue.handle, &sent.queue.key);
        let is_stale = handle.is_strict() && sent.clock_sets != self.clock.sets().count;
        if taken.is_outdated || is_stale {
            sent.lost();
            return;
        }
        let lease = self.lease(&sent.policy, sent.begun);
        let answer = sent.in_local_time(taken, offset, lease, now);
        if !sent.is_fallback {
            if lease.is_some() {
                let reclaimed = taken.occupancy.reclaimed;
                handle.load().telemetry.reclaimed_places(reclaimed);
            }
            let seen = &handle.seen;
            let quarantine = seen.remember(key, &sent.policy, taken, offset, sent.clock_sets);
            if let Some(left) = quarantine {
                handle.load().telemetry.quarantined(key, left);
            }
        }
        let first = answer.turns.iter().map(|(turn, _)| turn);
        let first = first.min_by_key(|turn| turn.until);
        if let Some(turn) = first.filter(|turn| turn.until < now) {
            // The answer came too late.
            sent.queue.missed(turn, now, true);
        }
        if sent.returns_capacity {
            handle.nudge_others(&sent.queue);
        } else {
            taken.nudged.iter().for_each(|&it| handle.nudge(key, it));
        }
        let (lost, refused, unbounded) = sent.queue.update(|queue| {
            let lost = queue.expire_lease(now);
            let refused = queue.apply_answer(sent.number, &answer, now);
            (lost, refused, queue.expected_without_bound())
        });
        sent.queue.report_lost(lost);
        // A place may be released at any time.
        if !sent.is_fallback
            && answer.lease.is_none()
            && let Some((cost, expected)) = refused
        {
            let earliest = expected.checked_sub(answer.uncertainty).unwrap_or(now);
            let denied = Denied {
                cost,
                rank: sent.queue.rank(),
                earliest,
                standing: Standing {
                    expected: Some(expected),
                    ..answer.standing
                },
                ends: earliest.min(sent.begun + LONGEST_DENIAL),
            };
            handle.denials.note(key, sent.begun, denied);
        }
        if let Some(wait) = unbounded.map(|it| it.saturating_duration_since(now))
            && wait > LONG_WAIT
        {
            handle.load().telemetry.waits_long(key, wait);
        }
    }

    pub(super) fn observe(&self, clock: &StoreClock, answered: &Answered) -> Offset {
        let it = answered;
        let (offset, set_by) = clock.observe(it.sent, it.received, it.now, it.server);
        if let Some(nanos) = set_by {
            self.telemetry.clock_set(nanos as f64 / 1e9);
        }
        offset
    }

    /// A call has failed.
    fn fail_call(self: &Arc<Self>, shard: Option<u64>, sent: &SentCall, error: &StoreError) {
        if let Some(shard) = shard.filter(|_| error.is_outage()) {
            self.out(shard, &sent.queue.key, error, false);
        }
        sent.failed(error);
    }
}

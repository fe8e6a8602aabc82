//! [`Faulty`]: a store with one fault, to see whether the contract finds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Ask, Listen, MemoryStore, Notice, Outcome, Release, Reply, Reserve, Reserved, Slot, Store,
    StoreError, Word,
};
use tower_throttle::{Algorithm, Limiter, Policy, WindowStart};

mod fault;

pub(crate) use self::fault::Fault;

/// A store with one fault, and otherwise as good as the one that it wraps.
#[derive(Debug, Clone)]
pub(crate) struct Faulty {
    store: MemoryStore,
    fault: Fault,
    seen: Arc<Mutex<AllSeen>>,
}

/// What was reserved, by the key and the policy's id.
type AllSeen = HashMap<(Key, String), Seen>;

#[derive(Debug)]
struct Seen {
    policy: Policy,
    last: u64,
}

impl Faulty {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            store: MemoryStore::new(),
            fault,
            seen: Arc::default(),
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn seen(&self) -> MutexGuard<'_, AllSeen> {
        self.seen.lock().expect("no panic while holding it")
    }

    fn key(&self, key: &Key) -> Key {
        let text = key.as_str();
        match self.fault {
            Fault::CutsLongKeys => text.chars().take(1_000).collect::<String>().into(),
            Fault::IgnoresTheCaseOfKeys => text.to_lowercase().into(),
            _ => key.clone(),
        }
    }

    fn policy(&self, policy: &Policy) -> Arc<Policy> {
        let mut quotas = policy.quotas().to_vec();
        match self.fault {
            Fault::ForgetsAllQuotasButOne => quotas.truncate(1),
            Fault::ForgetsOneOfSeven(place) if quotas.len() == 7 => {
                quotas.remove(place);
            }
            _ => {}
        }
        let buffer = match self.fault {
            Fault::ForgetsTheBuffer => Duration::ZERO,
            _ => policy.buffer(),
        };
        let builder = Limiter::builder().guard(policy.guard()).buffer(buffer);
        let mut builder = quotas.into_iter().fold(builder, |builder, quota| {
            builder.quota(self.fault.quota(quota))
        });
        if let Some(name) = policy
            .name()
            .filter(|_| !self.has(Fault::IgnoresTheNameOfPolicies))
        {
            builder = builder.name(name);
        }
        builder
            .build()
            .expect("what could be built before")
            .policy()
    }

    fn asks(&self, asks: &[Ask]) -> Vec<Ask> {
        let mut asks = asks.to_vec();
        for ask in &mut asks {
            match self.fault {
                Fault::IgnoresMaxWait => ask.max_wait = u64::MAX,
                Fault::ForgetsTheCost => ask.cost = 1,
                _ => {}
            }
        }
        asks
    }

    /// The guard that it goes by.
    fn guard(&self, guard: Duration, policy: &Policy) -> Duration {
        let is_cut = policy.quotas().iter().any(|quota| {
            let is_long = guard > quota.window() / 2;
            matches!(quota.counted_by(), Algorithm::FixedWindow { .. })
                && match self.fault {
                    Fault::LetsGuardsReachIntoTheNextWindow => !is_long,
                    Fault::CutsLongGuards => is_long,
                    _ => false,
                }
        });
        if is_cut && policy.quotas().len() == 1 {
            guard / 100
        } else {
            guard
        }
    }

    /// What the wrapped store answers, and what it should not have done besides.
    fn answer(&self, reserve: &Reserve<'_>) -> Reserved {
        let answer = now(self.store.reserve(reserve));
        let slots: Vec<_> = answer.outcomes().iter().rev().filter_map(slot).collect();
        let last = slots.first().map_or(0, |slot| slot.at);
        let id = (reserve.key.clone(), reserve.policy.id().into());
        self.seen()
            .entry(id)
            .or_insert_with(|| Seen {
                policy: reserve.policy.clone(),
                last: 0,
            })
            .last = last;
        if self.has(Fault::ForgetsToRecord) {
            now(self
                .store
                .release(&Release::new(reserve.key, reserve.policy, &slots)));
        }
        let charges = match self.fault {
            Fault::ChargesTheRefused => true,
            Fault::ChargesTheRefusedOfMany => reserve.policy.quotas().len() > 2,
            _ => false,
        };
        if charges && slots.len() < answer.outcomes().len() {
            now(self
                .store
                .reserve(&Reserve::new(reserve.key, reserve.policy)));
        }
        if self.has(Fault::ForgetsThatItWasFull) && slots.is_empty() && is_leaky(reserve.policy) {
            now(self.store.reset(reserve.key, reserve.policy));
        }
        answer
    }

    /// Lets another come half a window before the first, if that would open a window.
    fn open_too_early(&self, reserve: &Reserve<'_>) {
        let start = WindowStart::FirstRequest;
        let [quota] = reserve.policy.quotas() else {
            return;
        };
        if quota.counted_by() == (Algorithm::FixedWindow { start }) {
            let half = quota.window().as_micros() as u64 / 2;
            let mut early = Reserve::new(reserve.key, reserve.policy);
            early.not_before = reserve.not_before.saturating_sub(half);
            now(self.store.reserve(&early));
        }
    }

    fn distort(&self, reserve: &Reserve<'_>, key: &Key, answer: &Reserved) -> Reserved {
        let mut outcomes = answer.outcomes().to_vec();
        let cut = reserve.guard - self.guard(reserve.guard, reserve.policy);
        let asks = reserve.asks.iter();
        let costs = asks.flat_map(|ask| (0..ask.count).map(|_| ask.cost));
        for (outcome, cost) in outcomes.iter_mut().zip(costs) {
            match (self.fault, outcome) {
                (Fault::RoundsTheWaitUp, Outcome::Refused { wait }) => *wait += 1,
                (Fault::RoundsTheWaitDown, Outcome::Refused { wait }) => *wait -= 1,
                (Fault::RecordsTooEarly, Outcome::Granted(slot)) => slot.record -= 1,
                (Fault::ForgetsTheCost, Outcome::Granted(slot)) => slot.cost = cost,
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
            _ => answer.remaining(),
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
            answer.reset().saturating_sub(early),
        )
    }

    /// What a peek answers.
    fn looked(&self, peek: &Reserve<'_>) -> Reserved {
        let answer = now(self.store.peek(peek));
        let (mut outcomes, mut remaining) = (answer.outcomes().to_vec(), answer.remaining());
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
        let now = answer.now();
        let outcomes = outcomes.iter().map(|outcome| Outcome::Refused {
            wait: match outcome {
                Outcome::Granted(slot) => slot.at - now,
                Outcome::Refused { wait } => *wait,
            },
        });
        Reserved::new(now, outcomes, remaining, answer.reset())
    }
}

fn is_leaky(policy: &Policy) -> bool {
    let mut quotas = policy.quotas().iter();
    quotas.any(|quota| matches!(quota.counted_by(), Algorithm::LeakyBucket { .. }))
}

impl Store for Faulty {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (key, policy) = (self.key(reserve.key), self.policy(reserve.policy));
        let asks = self.asks(reserve.asks);
        let mut sent = Reserve::new(&key, &policy);
        sent.guard = self.guard(reserve.guard, reserve.policy);
        sent.least_guard = self.guard(reserve.least_guard, reserve.policy);
        sent.asks = &asks;
        if !self.has(Fault::IgnoresNotBefore) {
            sent.not_before = reserve.not_before;
        }
        if self.has(Fault::OpensWindowsTooEarly) && reserve.not_before > 0 {
            self.open_too_early(reserve);
        }
        let answer = self.distort(reserve, &key, &self.answer(&sent));
        match self.fault {
            Fault::SaysThatItIsNotReady => Reply::pending(async { Ok(answer) }),
            _ => Reply::ready(Ok(answer)),
        }
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let (key, policy) = (self.key(release.key), self.policy(release.policy));
        let release = Release::new(&key, &policy, release.slots);
        if self.has(Fault::TakesReleasesTwice) {
            now(self.store.release(&release));
        }
        match self.fault {
            Fault::IgnoresReleases => Reply::ready(Ok(())),
            _ => self.store.release(&release),
        }
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (key, policy) = (self.key(reserve.key), self.policy(reserve.policy));
        let mut asks = self.asks(reserve.asks);
        if self.has(Fault::PeekForgetsTheCost) {
            asks.iter_mut().for_each(|ask| ask.cost = 1);
        }
        let mut sent = Reserve::new(&key, &policy);
        sent.guard = self.guard(reserve.guard, reserve.policy);
        sent.least_guard = self.guard(reserve.least_guard, reserve.policy);
        (sent.asks, sent.not_before) = (&asks, reserve.not_before);
        if self.has(Fault::PeekOverlooksFreeSlots) {
            let id = (key.clone(), policy.id().into());
            let last = self.seen().get(&id).map_or(0, |seen| seen.last);
            sent.not_before = sent.not_before.max(last);
        }
        Reply::ready(Ok(self.looked(&sent)))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        let (key, policy) = (self.key(key), self.policy(policy));
        let start = key.as_str().split_once('*').map(|(start, _)| start);
        let mut seen = false;
        for ((other, id), it) in &*self.seen() {
            let same = (*other == key, id == policy.id());
            seen |= same == (true, true);
            let too = match self.fault {
                Fault::ResetsAllPolicies => same.0,
                Fault::ResetsAllKeys => same.1,
                Fault::ResetsByPattern => start.is_some_and(|it| other.as_str().starts_with(it)),
                _ => false,
            };
            if too {
                now(self.store.reset(other, &it.policy));
            }
        }
        match self.fault {
            Fault::ResetsNothing => Reply::ready(Ok(())),
            Fault::RefusesToResetAFreshKey if !seen => {
                Reply::ready(Err(StoreError::new("there is no such key")))
            }
            Fault::RecordsAReset if !seen => {
                now(self.store.reserve(&Reserve::new(&key, &policy)));
                Reply::ready(Ok(()))
            }
            _ => self.store.reset(&key, &policy),
        }
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.store.heed(&self.key(key), &self.policy(policy), word)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.store.listen(listener);
    }

    fn is_listening(&self) -> bool {
        self.store.is_listening()
    }

    fn is_local(&self) -> bool {
        true
    }
}

fn now<T: Unpin>(reply: Reply<T>) -> T {
    reply
        .now_or_never()
        .expect("a store in memory answers at once")
        .expect("and never fails")
}

fn slot(outcome: &Outcome) -> Option<Slot> {
    match outcome {
        Outcome::Granted(slot) => Some(slot.clone()),
        Outcome::Refused { .. } => None,
    }
}

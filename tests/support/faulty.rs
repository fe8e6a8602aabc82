//! [`Faulty`]: a store with one fault, to see whether the contract finds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use futures_util::FutureExt as _;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Listen, MemoryStore, Notice, Outcome, Release, Reply, Reserve, Reserved, Slot, Store,
    StoreError, Word,
};
use tower_throttle::{Algorithm, Policy};

mod answered;
mod asked;
mod fault;
mod heard;
mod relay;

pub(crate) use self::fault::Fault;
use self::heard::Memory;
use self::relay::Relays;

/// A store with one fault, and otherwise as good as the one that it wraps.
#[derive(Debug, Clone)]
pub(crate) struct Faulty {
    store: MemoryStore,
    fault: Fault,
    seen: Arc<Mutex<AllSeen>>,
    relays: Arc<Relays>,
}

/// What was reserved or said, by the key and the policy's id.
type AllSeen = HashMap<(Key, String), Seen>;

#[derive(Debug)]
struct Seen {
    policy: Policy,
    last: u64,
    memory: Memory,
}

impl From<Policy> for Seen {
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            last: 0,
            memory: Memory::default(),
        }
    }
}

impl Faulty {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            store: MemoryStore::new(),
            fault,
            seen: Arc::default(),
            relays: Arc::new(Relays::new(fault)),
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

    /// The time of the last slot that was reserved for a key.
    fn last(&self, key: &Key, policy: &Policy) -> u64 {
        let id = (key.clone(), policy.id().to_owned());
        self.seen().get(&id).map_or(0, |seen| seen.last)
    }

    /// What the wrapped store answers, and what it should not have done besides.
    fn answer(&self, reserve: &Reserve<'_>) -> Reserved {
        let answer = now(self.store.reserve(reserve));
        let slots: Vec<_> = answer.outcomes().iter().rev().filter_map(slot).collect();
        let last = slots.first().map_or(0, |slot| slot.at);
        let id = (reserve.key.clone(), reserve.policy.id().into());
        self.seen()
            .entry(id)
            .or_insert_with(|| reserve.policy.clone().into())
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
}

fn is_leaky(policy: &Policy) -> bool {
    let mut quotas = policy.quotas().iter();
    quotas.any(|quota| matches!(quota.counted_by(), Algorithm::LeakyBucket { .. }))
}

impl Store for Faulty {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (key, policy) = (self.key(reserve.key), self.policy(reserve.policy));
        let stands = self.stands(&key, &policy);
        let asks = self.asks(reserve.asks, &policy, stands);
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
        if self.has(Fault::LosesFreeSlotsInAPause) && stands.paused > 0 {
            sent.not_before = sent.not_before.max(self.last(&key, &policy));
        }
        let answer = self.held_up(&sent, stands);
        let answer = self.distort(reserve, &key, &answer, stands);
        match self.fault {
            Fault::SaysThatItIsNotReady => Reply::pending(async { Ok(answer) }),
            _ => Reply::ready(Ok(answer)),
        }
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let (key, policy) = (self.key(release.key), self.policy(release.policy));
        let release = Release::new(&key, &policy, release.slots);
        self.note_free(&release);
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
        let stands = self.stands(&key, &policy);
        let mut asks = self.asks(reserve.asks, &policy, stands);
        if self.has(Fault::PeekForgetsTheCost) {
            asks.iter_mut().for_each(|ask| ask.cost = 1);
        }
        let mut sent = Reserve::new(&key, &policy);
        sent.guard = self.guard(reserve.guard, reserve.policy);
        sent.least_guard = self.guard(reserve.least_guard, reserve.policy);
        (sent.asks, sent.not_before) = (&asks, reserve.not_before);
        if self.has(Fault::PeekOverlooksFreeSlots) {
            sent.not_before = sent.not_before.max(self.last(&key, &policy));
        }
        Reply::ready(Ok(self.looked(&sent, stands)))
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
            _ => {
                self.reset_words(&key, &policy);
                Reply::ready(Ok(()))
            }
        }
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.relays.prepare();
        let (key, policy) = (self.key(key), self.policy_of_words(policy));
        let notice = self.heeded(&key, &policy, word);
        match self.fault {
            Fault::HeedsLater => Reply::pending(async move { Ok(notice) }),
            _ => Reply::ready(Ok(notice)),
        }
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.store.listen(self.relays.add(listener));
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

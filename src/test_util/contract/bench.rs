//! A store under test, and what holds for its every answer: [`Bench`].

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use super::policies::policy;
use super::{LONG, any_wait, at_once, granted, refused, require};
use crate::algorithm::micros;
use crate::key::Key;
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, DRIFT, Notice, Outcome, Release, Reserve, Reserved, Slot, Store, Word};

/// Between two looks at what is to come true.
const NAP: Duration = Duration::from_millis(10);

/// So many naps are half a minute, in which a store does what it does at all.
const NAPS: usize = 3_000;

/// A store on which one clause is tested.
pub(super) struct Bench<S> {
    pub(super) store: Arc<S>,
    clause: &'static str,
    run: u64,
}

impl<S: Store> Bench<S> {
    pub(super) fn new(store: S, clause: &'static str) -> Self {
        Self {
            store: Arc::new(store),
            clause,
            // Each of these states has its own random seed.
            run: RandomState::new().build_hasher().finish(),
        }
    }

    /// A key that never was before and is always the same for one name.
    pub(super) fn key(&self, name: &str) -> Key {
        Key::from(format!("{name}-{:016x}", self.run))
    }

    /// Asks for what the other methods have no words for, and checks what holds for every answer.
    pub(super) async fn reserve(&self, reserve: &Reserve<'_>) -> Reserved {
        let reply = self.store.reserve(reserve);
        let answer = reply.await.unwrap_or_else(|error| {
            self.fail(format_args!("a reservation failed: {error:?}"));
        });
        self.check(reserve, &answer);
        answer
    }

    pub(super) async fn ask(&self, key: &Key, policy: &Policy, asks: &[Ask]) -> Reserved {
        let reserve = Reserve {
            asks,
            ..Reserve::new(key, policy)
        };
        self.reserve(&reserve).await
    }

    /// Slots for so many requests of cost 1, however far ahead.
    pub(super) async fn slots(&self, key: &Key, policy: &Policy, count: u32) -> Vec<Slot> {
        granted(&self.ask(key, policy, &[any_wait(count)]).await)
    }

    pub(super) async fn slot(&self, key: &Key, policy: &Policy) -> Slot {
        self.slots(key, policy, 1).await.remove(0)
    }

    pub(super) async fn release(&self, key: &Key, policy: &Policy, slots: &[Slot]) {
        let reply = self.store.release(&Release::new(key, policy, slots));
        if let Err(error) = reply.await {
            self.fail(format_args!("a release failed: {error:?}"));
        }
    }

    /// As [`reserve`](Self::reserve), but only looks.
    pub(super) async fn peek(&self, reserve: &Reserve<'_>) -> Reserved {
        let answer = self.store.peek(reserve).await.unwrap_or_else(|error| {
            self.fail(format_args!("a peek failed: {error:?}"));
        });
        let asked: u32 = reserve.asks.iter().map(|ask| ask.count).sum();
        let (got, told) = (answer.outcomes().len(), refused(&answer).len());
        require!(
            self,
            got == asked as usize,
            "{got} outcomes for a peek at {asked} requests"
        );
        require!(self, told == got, "a peek was answered with a slot");
        answer
    }

    /// The time at which a request of this cost would depart, and the answer that tells it.
    pub(super) async fn promise(&self, key: &Key, policy: &Policy, cost: u32) -> (u64, Reserved) {
        let asks = [Ask {
            cost,
            ..any_wait(1)
        }];
        let reserve = Reserve {
            asks: &asks,
            ..Reserve::new(key, policy)
        };
        let answer = self.peek(&reserve).await;
        (answer.now() + refused(&answer)[0], answer)
    }

    pub(super) async fn reset(&self, key: &Key, policy: &Policy) {
        if let Err(error) = self.store.reset(key, policy).await {
            self.fail(format_args!("a reset failed: {error:?}"));
        }
    }

    pub(super) async fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Notice {
        let reply = self.store.heed(key, policy, word);
        reply.await.unwrap_or_else(|error| {
            self.fail(format_args!("{word:?} is not heeded: {error:?}"));
        })
    }

    /// Says that nothing may depart for so long.
    pub(super) async fn pause(&self, key: &Key, policy: &Policy, span: Duration) -> Notice {
        let word = Word::Pause {
            span: micros(span),
            departed: u64::MAX,
        };
        self.heed(key, policy, word).await
    }

    /// Says that no more than this may depart for so long.
    pub(super) async fn allow(
        &self,
        key: &Key,
        policy: &Policy,
        left: u32,
        span: Duration,
    ) -> Notice {
        let span = micros(span);
        self.heed(key, policy, Word::Allow { left, span }).await
    }

    /// The store's time, which it tells with any answer.
    pub(super) async fn now(&self) -> u64 {
        let policy = policy(&[Quota::new(u32::from(u16::MAX), Duration::from_secs(1))]);
        self.ask(&self.key("clock"), &policy, &[at_once(1)])
            .await
            .now()
    }

    /// Waits until the store's clock shows a later time than this.
    pub(super) async fn wait_until_after(&self, time: u64) {
        // A clock that runs at all shows some seconds more by then.
        for _ in 0..NAPS {
            if self.now().await > time {
                return;
            }
            tokio::time::sleep(NAP).await;
        }
        self.fail(format_args!("its clock does not advance"));
    }

    /// Waits until this is so, but not for ever: returns whether it is.
    pub(super) async fn comes_true(&self, is_so: impl Fn() -> bool) -> bool {
        for _ in 0..NAPS {
            if is_so() {
                return true;
            }
            tokio::time::sleep(NAP).await;
        }
        is_so()
    }

    /// The length of windows of the store's clock of which the present one is neither about to end
    /// nor has just begun: close to [`LONG`], if that clock counts from 1970.
    pub(super) async fn clock_window(&self) -> Duration {
        let now = self.now().await;
        let suits = |length: &u64| (length / 8..length / 4).contains(&(now % length));
        let mut lengths = (micros(LONG)..).step_by(1_000).take(10_000);
        lengths.find(suits).map_or(LONG, Duration::from_micros)
    }

    fn check(&self, reserve: &Reserve<'_>, answer: &Reserved) {
        let requests = reserve
            .asks
            .iter()
            .flat_map(|ask| (0..ask.count).map(move |_| ask));
        let (asked, got) = (requests.clone().count(), answer.outcomes().len());
        require!(self, got == asked, "{got} outcomes for {asked} requests");
        let margin = micros(reserve.least_guard + reserve.policy.buffer());
        let full = full_bucket(reserve);
        let mut x = answer.now().max(reserve.not_before);
        for (ask, outcome) in requests.zip(answer.outcomes()) {
            match outcome {
                Outcome::Granted(slot) => {
                    let Slot {
                        at, record, cost, ..
                    } = *slot;
                    require!(
                        self,
                        at >= x,
                        "a slot at {at}, where {x} is the earliest possible"
                    );
                    require!(self, cost == ask.cost, "a slot of cost {cost} for {ask:?}");
                    let wait = at - answer.now();
                    require!(
                        self,
                        wait <= ask.max_wait,
                        "a slot {wait} us ahead for {ask:?}"
                    );
                    let least = at + margin + wait / DRIFT;
                    require!(
                        self,
                        record >= least,
                        "{slot:?} is not recorded at {least} or later"
                    );
                    x = at;
                }
                Outcome::Refused { wait } => {
                    let refused = *wait > full.map_or(ask.max_wait, |full| full.min(ask.max_wait));
                    require!(
                        self,
                        refused,
                        "refused for a wait of {wait} us within {ask:?}"
                    );
                }
            }
        }
    }

    pub(super) fn fail(&self, why: fmt::Arguments<'_>) -> ! {
        let clause = self.clause.replace('_', " ");
        panic!("the store breaks its contract: {clause}: {why}");
    }
}

/// How long the last waits that a leaky bucket holds, if there is one.
fn full_bucket(reserve: &Reserve<'_>) -> Option<u64> {
    let margin = micros(reserve.guard + reserve.policy.buffer());
    let full = |quota: &Quota| match quota.counted_by() {
        Algorithm::LeakyBucket { capacity } => {
            Some((super::judge::interval(quota) + margin) * u64::from(capacity))
        }
        _ => None,
    };
    reserve.policy.quotas().iter().filter_map(full).min()
}

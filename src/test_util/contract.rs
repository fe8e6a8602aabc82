//! What every store has to keep, put to the test: [`store_contract`].

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::micros;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, DRIFT, Outcome, Release, Reserve, Reserved, Slot, Store};

mod asks;
mod keys;
mod quotas;
mod releases;
mod waits;

/// Long enough that what is asked in one breath falls into one window, on the slowest machine.
const LONG: Duration = Duration::from_secs(60);

/// Far more than [`NEAR`], so that no trace of a departure goes unnoticed.
const GUARD: Duration = Duration::from_millis(100);

/// How far slots may lie apart that are the same but for the drift of clocks over their wait, which
/// counts from the call.
const NEAR: u64 = 10_000;

/// Fails a clause unless the condition holds.
macro_rules! require {
    ($bench:expr, $condition:expr, $($why:tt)+) => {
        if !$condition {
            $bench.fail(format_args!($($why)+));
        }
    };
}
use require;

/// Runs each clause on a bench of its own.
macro_rules! clauses {
    ($make:expr; $($module:ident: $($clause:ident),+;)+) => {
        $($($module::$clause(&Bench::new($make().await, stringify!($clause))).await;)+)+
    };
}

/// Tests that a store keeps what a limiter relies on.
///
/// A limiter checks no answer of its store: one that hands out a slot too many breaks the quota, and
/// nobody sees it. Run this in a test of your own, in which `make` yields the store, once per clause:
///
/// ```
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::test_util::store_contract;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// store_contract(async || MemoryStore::new()).await;
/// # }
/// ```
///
/// It is no matter whether these stores share state with each other, or with an earlier run: every
/// run uses keys that never were before. What it reserves for them lies up to half an hour ahead.
///
/// It takes some seconds, as a few clauses wait for real time to pass. No clause expects anything
/// of a call's duration, so a slow store passes on a slow machine. Pause tokio's time only
/// if it is the store's clock too.
///
/// # The clauses
///
/// - In every answer: one outcome per request; no slot before the store's time, before
///   [`not_before`](Reserve::not_before) or before the slot of the request ahead; no wait beyond the
///   bound, and no refusal within it; the [record](Slot::record) as late as the guard, the buffer and
///   the drift ask for.
/// - Each [`Algorithm`] keeps its bound and wastes no more than a twentieth of a window; joint
///   quotas are charged all or none; concurrent reservations share no slot; what remains, and the
///   reset, are right.
/// - A refusal records nothing, and its wait is exact to the microsecond. The store's time never
///   goes back. A store that [is local](Store::is_local) answers at once.
/// - Of the slots that are released, the last ones leave no trace, a middle one goes to the next
///   request, and one whose time has come is charged no longer.
/// - Any text is a key. Keys and policies do not affect each other, unless both the key and the
///   [`Policy::id`] are the same. What has passed is forgotten.
///
/// # Panics
///
/// Panics at the first clause that the store breaks, naming it; also if a call fails.
pub async fn store_contract<S: Store>(make: impl AsyncFn() -> S) {
    clauses! { make;
        quotas:
            a_sliding_log_never_exceeds_its_limit,
            spacing_keeps_its_gaps,
            gcra_keeps_its_burst_and_rate,
            joint_quotas_all_hold,
            joint_quotas_are_charged_all_or_none,
            remaining_and_reset_tell_what_is_left;
        asks:
            asks_of_several_costs_are_answered_in_order,
            concurrent_reservations_share_no_slot,
            a_local_store_answers_at_once;
        waits:
            a_refusal_records_nothing,
            the_wait_of_a_refusal_is_exact,
            no_slot_lies_before_not_before,
            slots_that_skip_ahead_keep_the_limit,
            the_time_never_goes_back;
        releases:
            the_last_slots_leave_no_trace,
            a_slot_from_the_middle_serves_the_next_request,
            a_slot_from_the_middle_keeps_its_guard,
            a_request_that_did_not_depart_is_charged_no_longer,
            a_free_slot_that_nobody_took_is_charged_no_longer,
            a_slot_that_is_charged_no_longer_frees_no_other;
        keys:
            strange_keys_are_keys_of_their_own,
            keys_do_not_affect_each_other,
            other_policies_do_not_affect_each_other,
            policies_of_one_id_share_their_quotas,
            what_has_passed_is_forgotten;
    }
}

/// A store on which one clause is tested.
struct Bench<S> {
    store: Arc<S>,
    clause: &'static str,
    run: u64,
}

impl<S: Store> Bench<S> {
    fn new(store: S, clause: &'static str) -> Self {
        Self {
            store: Arc::new(store),
            clause,
            // Each of these states has its own random seed.
            run: RandomState::new().build_hasher().finish(),
        }
    }

    /// A key that never was before and is always the same for one name.
    fn key(&self, name: &str) -> Key {
        Key::from(format!("{name}-{:016x}", self.run))
    }

    /// Asks for what the other methods have no words for, and checks what holds for every answer.
    async fn reserve(&self, reserve: &Reserve<'_>) -> Reserved {
        let reply = self.store.reserve(reserve);
        let answer = reply.await.unwrap_or_else(|error| {
            self.fail(format_args!("a reservation failed: {error:?}"));
        });
        self.check(reserve, &answer);
        answer
    }

    async fn ask(&self, key: &Key, policy: &Policy, asks: &[Ask]) -> Reserved {
        let reserve = Reserve {
            asks,
            ..Reserve::new(key, policy)
        };
        self.reserve(&reserve).await
    }

    /// Slots for so many requests of cost 1, however far ahead.
    async fn slots(&self, key: &Key, policy: &Policy, count: u32) -> Vec<Slot> {
        granted(&self.ask(key, policy, &[any_wait(count)]).await)
    }

    async fn slot(&self, key: &Key, policy: &Policy) -> Slot {
        self.slots(key, policy, 1).await.remove(0)
    }

    async fn release(&self, key: &Key, policy: &Policy, slots: &[Slot]) {
        let reply = self.store.release(&Release::new(key, policy, slots));
        if let Err(error) = reply.await {
            self.fail(format_args!("a release failed: {error:?}"));
        }
    }

    /// The store's time, which it tells with any answer.
    async fn now(&self) -> u64 {
        let policy = policy(&[Quota::new(u32::from(u16::MAX), Duration::from_secs(1))]);
        self.ask(&self.key("clock"), &policy, &[at_once(1)])
            .await
            .now()
    }

    /// Waits until the store's clock shows a later time than this.
    async fn wait_until_after(&self, time: u64) {
        const NAP: Duration = Duration::from_millis(10);
        // A clock that runs at all shows some seconds more by then.
        for _ in 0..3_000 {
            if self.now().await > time {
                return;
            }
            tokio::time::sleep(NAP).await;
        }
        self.fail(format_args!("its clock does not advance"));
    }

    fn check(&self, reserve: &Reserve<'_>, answer: &Reserved) {
        let requests = reserve
            .asks
            .iter()
            .flat_map(|ask| (0..ask.count).map(move |_| ask));
        let (asked, got) = (requests.clone().count(), answer.outcomes().len());
        require!(self, got == asked, "{got} outcomes for {asked} requests");
        let margin = micros(reserve.least_guard + reserve.policy.buffer());
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
                    let refused = *wait > ask.max_wait;
                    require!(
                        self,
                        refused,
                        "refused for a wait of {wait} us within {ask:?}"
                    );
                }
            }
        }
    }

    fn fail(&self, why: fmt::Arguments<'_>) -> ! {
        let clause = self.clause.replace('_', " ");
        panic!("the store breaks its contract: {clause}: {why}");
    }
}

fn policy(quotas: &[Quota]) -> Arc<Policy> {
    let builder = Limiter::builder().guard(GUARD);
    let builder = quotas
        .iter()
        .fold(builder, |builder, quota| builder.quota(*quota));
    builder.build().expect("quotas that can hold").policy()
}

fn log(limit: u32) -> Arc<Policy> {
    policy(&[Quota::new(limit, LONG)])
}

/// One of each kind, and two joined, all with slots that are [`LONG`] / 4 apart or more.
fn kinds() -> [(&'static str, Arc<Policy>); 4] {
    let spacing = Quota::new(4, LONG).algorithm(Algorithm::Spacing);
    [
        ("log", log(2)),
        ("spacing", policy(&[spacing])),
        (
            "gcra",
            policy(&[Quota::new(4, LONG).algorithm(Algorithm::Gcra { burst: 2 })]),
        ),
        ("joint", policy(&[Quota::new(2, LONG), spacing])),
    ]
}

fn any_wait(count: u32) -> Ask {
    waits(count, u64::MAX)
}

fn at_once(count: u32) -> Ask {
    waits(count, 0)
}

fn waits(count: u32, max_wait: u64) -> Ask {
    Ask {
        count,
        cost: 1,
        max_wait,
    }
}

fn granted(answer: &Reserved) -> Vec<Slot> {
    let slots = answer
        .outcomes()
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Granted(slot) => Some(slot.clone()),
            Outcome::Refused { .. } => None,
        });
    slots.collect()
}

/// The waits of those that were refused.
fn refused(answer: &Reserved) -> Vec<u64> {
    let waits = answer
        .outcomes()
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Granted(_) => None,
            Outcome::Refused { wait } => Some(*wait),
        });
    waits.collect()
}

fn times(slots: &[Slot]) -> Vec<u64> {
    slots.iter().map(|slot| slot.at).collect()
}

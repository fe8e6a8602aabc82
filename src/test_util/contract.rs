//! What every store has to keep, put to the test: [`store_contract`].

use std::time::Duration;

use self::bench::Bench;
use crate::store::{Ask, Outcome, Reserved, Slot, Store};

mod allowances;
mod asks;
mod bench;
mod capacity;
mod joint;
mod judge;
mod keys;
mod listeners;
mod notices;
mod pauses;
mod peeks;
mod policies;
mod quotas;
mod releases;
mod remaining;
mod resets;
mod waits;
mod windows;
mod words;

/// Long enough that what is asked in one breath falls into one window, on the slowest machine.
const LONG: Duration = Duration::from_secs(60);

/// Far more than [`NEAR`], so that no trace of a departure goes unnoticed.
const GUARD: Duration = Duration::from_millis(100);

/// How long nothing may depart, or little: the present window of the clock ends later.
const PAUSE: Duration = Duration::from_secs(30);

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
///   [`not_before`](crate::store::Reserve::not_before) or before the slot of the request ahead; no
///   wait beyond the bound, and no refusal within it, unless a leaky bucket is full; the
///   [record](Slot::record) as late as the guard, the buffer and the drift ask for.
/// - Each [`Algorithm`](crate::Algorithm) keeps its bound, by the slots and by the ends of their
///   guards, whatever requests cost, and wastes no more than a twentieth of a window. Sliding buckets
///   lose besides the length of one bucket at most. A leaky bucket holds as many as its capacity and
///   refuses one more. In fixed windows, those of the clock or those that begin with a request, no
///   guard reaches from one into the next.
/// - Joint quotas, be they of all algorithms, all hold, and are charged all or none. Concurrent
///   reservations share no slot.
/// - As many as remain depart at once; the reset is when all remain.
/// - A refusal records nothing, and its wait is exact to the microsecond. The store's time never
///   goes back. A store that [is local](Store::is_local) answers at once.
/// - Of the slots that are released, the last ones leave no trace, a middle one goes to the next
///   request, and one whose time has come is charged no longer.
/// - A peek records nothing, and tells for each request alone the wait that the next of this cost
///   has. A reset forgets all of one key under one policy and nothing else.
/// - During a [pause](crate::store::Word::Pause) no slot lies before its end, not even one that is free, and
///   the first lies there if nothing else is recorded; who asks or looks is told so. It fills no leaky
///   bucket. A longer one extends it, a shorter one and an old answer do not. No more departs than is
///   [allowed](crate::store::Word::Allow), by cost, and no word makes that more. What was reserved before and
///   lies behind stays charged.
/// - A [notice](crate::store::Notice) voids what was reserved before the word and lies before its end, to
///   the microsecond; one of a word that changes nothing voids nothing. Who only looks is told how the key
///   stands. To resume ends whatever was said and voids all that was reserved, a reset forgets it, and by
///   itself it ends in time. A word is of one key under one policy. A store that
///   [is listening](Store::is_listening) tells every listener of it, until that is dropped.
/// - Any text is a key. Keys and policies do not affect each other, unless both the key and the
///   [`Policy::id`](crate::Policy::id) are the same. What has passed is forgotten.
///
/// # Panics
///
/// Panics at the first clause that the store breaks, naming it; also if a call fails.
pub async fn store_contract<S: Store>(make: impl AsyncFn() -> S) {
    clauses! { make;
        quotas:
            a_sliding_log_never_exceeds_its_limit,
            sliding_buckets_never_exceed_their_limit,
            spacing_keeps_its_gaps,
            a_leaky_bucket_keeps_its_gaps,
            gcra_keeps_its_burst_and_rate;
        windows:
            windows_of_the_clock_hold_no_more_than_their_limit,
            windows_from_the_first_request_hold_no_more_than_their_limit;
        quotas:
            costs_count_as_so_many;
        capacity:
            a_leaky_bucket_holds_as_many_as_its_capacity,
            a_full_leaky_bucket_records_nothing,
            a_leaky_bucket_leaks_by_itself;
        joint:
            joint_quotas_all_hold,
            a_mixture_of_all_algorithms_holds_every_bound,
            joint_quotas_are_charged_all_or_none,
            a_mixture_of_all_algorithms_is_charged_all_or_none;
        remaining:
            what_remains_of_a_log_is_told,
            as_many_as_remain_depart_at_once,
            the_reset_tells_when_all_remain;
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
        windows:
            a_window_begins_with_the_first_request_after_the_last,
            no_guard_reaches_into_the_next_window,
            who_may_depart_in_several_windows_counts_in_all;
        releases:
            the_last_slots_leave_no_trace,
            a_slot_from_the_middle_serves_the_next_request,
            a_slot_from_the_middle_keeps_its_guard,
            a_request_that_did_not_depart_is_charged_no_longer,
            a_free_slot_that_nobody_took_is_charged_no_longer,
            a_slot_that_is_charged_no_longer_frees_no_other;
        capacity:
            a_full_leaky_bucket_takes_one_for_each_that_leaves;
        keys:
            strange_keys_are_keys_of_their_own,
            keys_do_not_affect_each_other,
            other_policies_do_not_affect_each_other,
            policies_of_one_id_share_their_quotas;
        peeks:
            a_peek_at_a_fresh_key_finds_nothing,
            a_peek_records_nothing,
            the_wait_that_a_peek_tells_is_what_the_next_has,
            a_peek_answers_each_request_alone,
            a_peek_leaves_a_free_slot_free;
        resets:
            a_reset_of_a_fresh_key_is_none,
            a_reset_forgets_all_of_a_key,
            a_reset_leaves_all_others_alone;
        pauses:
            no_slot_lies_within_a_pause,
            who_comes_during_a_pause_is_told_of_its_end,
            who_does_not_wait_for_a_pause_leaves_no_trace,
            a_pause_fills_no_leaky_bucket,
            a_shorter_pause_leaves_a_longer_one,
            a_longer_pause_extends_a_shorter_one,
            an_old_answer_extends_no_pause;
        allowances:
            no_more_than_is_allowed_departs,
            costs_count_for_an_allowance,
            an_allowance_never_rises,
            a_pause_and_an_allowance_hold_both,
            a_free_slot_counts_for_an_allowance;
        words:
            resuming_ends_whatever_was_said,
            what_lies_behind_a_pause_stays_charged,
            a_free_slot_within_a_pause_serves_nobody,
            words_concern_one_key_under_one_policy,
            policies_of_one_id_share_what_was_said,
            a_reset_forgets_what_was_said,
            what_was_said_is_forgotten_in_time;
        notices:
            a_word_voids_what_was_reserved_before,
            resuming_voids_what_was_reserved_before,
            a_word_that_changes_nothing_voids_nothing,
            how_a_key_stands_is_told;
        listeners:
            whoever_listens_is_told,
            a_listener_may_leave;
        keys:
            what_has_passed_is_forgotten;
    }
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

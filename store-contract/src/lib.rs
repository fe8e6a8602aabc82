//! Conformance tests for implementations of [`Store`]: [`store_contract`].

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use self::bench::Bench;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::Store;

mod bench;
mod bounds;
mod clocks;
mod commands;
mod corrections;
mod judge;
mod keys;
mod places;
#[cfg(test)]
mod tests;
mod turns;

/// Access to a store behind the trait, for the clauses that need it. Each method is optional.
pub trait StoreHooks: fmt::Debug + Send + Sync + 'static {
    /// The value that the store keeps for a key, byte by byte.
    fn read(&self, _key: &Key, _policy: &Policy) -> Option<Vec<u8>> {
        None
    }

    /// Replaces that value, and returns true if it did.
    fn write(&self, _key: &Key, _policy: &Policy, _value: &[u8]) -> bool {
        false
    }

    /// Returns true if the store [nudges](tower_throttle::store::Store::subscribe) its subscribers.
    fn nudges(&self) -> bool {
        false
    }
}

/// No hooks.
impl StoreHooks for () {}

/// Tests that a store does what a limiter relies on.
///
/// A limiter does not check its store: a departure too many goes unnoticed. Call this in a test, with
/// a function that returns the store; it is called twice for each clause. If your store keeps its state elsewhere, return a new
/// instance with a connection of its own, as another process has: clones may share a lock that other processes do not see.
///
/// ```
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle_store_contract::store_contract;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// store_contract(async || MemoryStore::new()).await;
/// # }
/// ```
///
/// The stores may share state with each other and with earlier runs, as every run uses new keys. Pause tokio's time
/// only if the store's clock follows it. Otherwise, a run takes a few seconds, and makes about 1,000 calls. The calls carry a guard
/// of 10 ms and no clause depends on how long a call takes, so a slow store passes too.
///
/// Two mistakes cannot be found: a clock of each host instead of that of the database, and values that are not kept for as long as
/// [`Call::apply`](tower_throttle::store::Call::apply) says, which may be a year.
///
/// # The clauses
///
/// - No quota is exceeded, whatever its algorithm, whenever the requests depart between their grant and the end of
///   their guard, and arrive upstream within the buffer behind it. Capacity is used. Joint quotas all
///   hold, and costs count.
/// - Concurrent calls are atomic, also those of two instances that share state, and each is applied once. Batches answer each
///   operation in its place.
/// - Processes are granted departures in the order in which their requests arrived.
/// - The departures of an answer that was lost are taken back. A call that arrives behind a later one changes nothing.
/// - Requests in progress hold their places until these are released, or until their lease ends.
/// - Refunds and debts are settled. Peeks record nothing. Pauses, allowances, resumes and resets do what they say.
/// - Any text is a key. Keys do not affect each other, nor do policies of different names. A policy whose quotas were
///   changed keeps its departures.
/// - Departures count for their window and no longer. Under strict recovery, a state that is too old is put into
///   quarantine.
/// - The clock of a shard neither jumps nor goes back, and its server keeps its number.
/// - With [hooks](store_contract_with): a value that this crate did not write is reported and stays; a million
///   departures per hour need at most 12 kB; a reset nudges all subscribers, and a returned place the process that waits for it.
///
/// # Panics
///
/// Panics if the store breaks a clause, naming it, or if a call fails.
pub async fn store_contract<S: Store>(make: impl AsyncFn() -> S) {
    store_contract_with(make, ()).await;
}

/// Does what [`store_contract`] does, with access to the store's values.
///
/// # Panics
///
/// Panics as that does.
pub async fn store_contract_with<S: Store>(make: impl AsyncFn() -> S, hooks: impl StoreHooks) {
    let random = std::collections::hash_map::RandomState::new();
    let run = format!("contract-{:x}", random.hash_one(std::process::id()));
    let hooks: Arc<dyn StoreHooks> = Arc::new(hooks);
    let mut number = 0;
    macro_rules! clauses {
        ($($module:ident: $($clause:ident),+;)+) => {
            $($({
                let stores: [Arc<dyn Store>; 2] = [Arc::new(make().await), Arc::new(make().await)];
                number += 1;
                let prefix = format!("{run}-{number}");
                let bench = Bench::new(stores, hooks.clone(), prefix, stringify!($clause));
                $module::$clause(&Arc::new(bench)).await;
            })+)+
        };
    }
    clauses! {
        clocks:
            the_clock_neither_jumps_nor_goes_back;
        bounds:
            concurrent_calls_are_atomic,
            no_quota_is_exceeded,
            joint_quotas_all_hold,
            a_long_log_stays_small;
        turns:
            requests_depart_in_the_order_of_their_arrival,
            a_demand_that_is_withdrawn_counts_no_longer,
            calls_that_were_overtaken_change_nothing,
            lost_answers_are_taken_back;
        corrections:
            refunds_make_units_available,
            debts_take_units,
            unknown_departures_are_not_refunded,
            a_peek_records_nothing,
            no_departure_is_expected_too_late;
        commands:
            nothing_departs_during_a_pause,
            a_late_answer_pauses_nothing,
            no_more_departs_than_is_allowed,
            a_reset_forgets_one_key,
            a_reset_nudges;
        keys:
            batches_answer_each_operation,
            a_cost_beyond_the_quotas_is_refused_alone,
            any_text_is_a_key,
            policies_of_other_names_do_not_count,
            changed_quotas_keep_departures,
            unrecognized_values_are_reported_and_kept;
        clocks:
            departures_count_for_their_window,
            a_pause_outlives_the_departures,
            a_state_that_is_too_old_is_in_quarantine;
        places:
            places_are_held_until_they_are_released_or_their_lease_ends,
            a_returned_place_nudges_the_next_process;
    }
}

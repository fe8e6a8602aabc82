//! The order of several processes, and answers that are lost or late.

use std::sync::Arc;

use super::bench::{Bench, Entry, LONG, Process, SECOND, granted, policy};
use tower_throttle::store::contents::Command;

/// More than a window, and less than two.
const HORIZON: u64 = 15 * SECOND;

/// A process with this many requests, of which the first arrived at this time.
fn process(entry: &Entry, arrival: u64, requests: u64) -> Process {
    let mut process = entry.process();
    process.join((0..requests).map(|place| (arrival + place, 1)));
    process
}

pub(super) async fn requests_depart_in_the_order_of_their_arrival(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/10s"));
    let start = entry.now().await;
    let mut first = process(&entry, start, 30);
    let mut later = process(&entry, start + 1_000, 5);
    let mut earlier = process(&entry, start - SECOND, 3);
    first.takes(10, "requests of the first").await;
    for process in [&mut first, &mut later, &mut earlier] {
        process.horizon = HORIZON;
    }
    for (of_earlier, of_first) in [(3, 7), (0, 0)] {
        later
            .takes(0, "requests behind 20 that arrived before")
            .await;
        earlier.takes(of_earlier, "of the earliest requests").await;
        first.takes(of_first, "requests behind the earliest").await;
    }
}

pub(super) async fn a_demand_that_is_withdrawn_counts_no_longer(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/10s"));
    let start = entry.now().await;
    let mut first = process(&entry, start, 30);
    let mut later = process(&entry, start + 1_000, 5);
    later.horizon = HORIZON;
    first.take().await;
    first.queue.clear();
    first.take().await;
    later
        .takes(5, "requests behind those that are withdrawn")
        .await;
}

pub(super) async fn lost_answers_are_taken_back(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(quota));
        let mut process = process(&entry, 1, 6);
        process.horizon = SECOND;
        let first = granted(&entry.call(&process.next_take(0)).await.1);
        // The answer to the second call is lost, too.
        entry.call(&process.next_take(1)).await;
        let again = granted(&entry.call(&process.next_take(1)).await.1);
        if again != first {
            entry.fail(format_args!("{again} of {first} requests depart again"));
        }
        let left = if first < 6 { 0 } else { 4 };
        entry.departs(10, left, "after those").await;

        // That answer arrived. The next call does not reach the store, so there is nothing to take back.
        process.next_take(0);
        let arrived = granted(&entry.call(&process.next_take(4)).await.1);
        // A reset takes the grants of a lost answer with it.
        entry.control(Command::Reset).await;
        entry.call(&process.next_take(0)).await;
        entry.control(Command::Reset).await;
        entry.depart(10).await;
        let reset = granted(&entry.call(&process.next_take(6)).await.1);
        if [arrived, reset] != [0, 0] {
            entry.fail(format_args!(
                "{arrived} departures are taken back that had arrived, and {reset} that were reset"
            ));
        }
    }
}

pub(super) async fn calls_that_were_overtaken_change_nothing(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/365d"));
    let mut process = process(&entry, 1, 3);
    let [early, late] = [process.next_take(0), process.next_take(0)];
    let count = granted(&entry.call(&late).await.1);
    if count != 3 {
        entry.fail(format_args!("{count} of 3 requests depart"));
    }
    for (operation, name) in [(&early, "an earlier call"), (&late, "the same call again")] {
        let (_, taken) = entry.call(operation).await;
        if !taken.is_outdated || !taken.grants.is_empty() {
            entry.fail(format_args!("{name} is answered with {taken:?}"));
        }
    }
    entry.departs(10, 7, "after 3").await;
}

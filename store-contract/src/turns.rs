//! The order of several processes, and answers that are lost or late.

use std::sync::Arc;

use super::bench::{Bench, SECOND, granted, policy};
use super::require;
use tower_throttle::store::contents::{Mode, Operation};

/// More than a window, and less than two.
const HORIZON: u64 = SECOND * 3 / 2;

pub(super) async fn requests_depart_in_the_order_of_their_arrival(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/s"));
    let start = bench.ping(&key).await.now;
    let [mut first, mut later, mut earlier] = [(); 3].map(|()| bench.process(&key, &policy));
    first.join((0..30).map(|place| (start + place, 1)));
    later.join((0..5).map(|place| (start + 1_000 + place, 1)));
    earlier.join((0..3).map(|place| (start - SECOND + place, 1)));
    let count = granted(&first.take(Mode::Wait).await);
    require!(
        bench,
        count == 10,
        "{count} of 30 requests depart under 10/s"
    );
    for process in [&mut first, &mut later, &mut earlier] {
        process.horizon = HORIZON;
    }
    for round in 0..2 {
        let count = granted(&later.take(Mode::Wait).await);
        require!(
            bench,
            count == 0,
            "{count} requests overtake 20 that arrived before them, in round {round}"
        );
        let count = granted(&earlier.take(Mode::Wait).await);
        let expected = 3 - 3 * round;
        require!(
            bench,
            count == expected,
            "{count} of the earliest requests depart"
        );
        let count = granted(&first.take(Mode::Wait).await);
        let expected = 7 - 7 * round;
        require!(
            bench,
            count == expected,
            "{count} requests depart behind the earliest"
        );
    }
}

pub(super) async fn a_demand_that_is_withdrawn_counts_no_longer(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/s"));
    let start = bench.ping(&key).await.now;
    let [mut first, mut later] = [(); 2].map(|()| bench.process(&key, &policy));
    first.join((0..30).map(|place| (start + place, 1)));
    later.join((0..5).map(|place| (start + 1_000 + place, 1)));
    later.horizon = HORIZON;
    first.take(Mode::Wait).await;
    first.queue.clear();
    first.take(Mode::Wait).await;
    let count = granted(&later.take(Mode::Wait).await);
    require!(
        bench,
        count == 5,
        "{count} of 5 requests depart within {HORIZON} µs"
    );
}

pub(super) async fn lost_answers_are_taken_back(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/365d"));
    let mut process = bench.process(&key, &policy);
    process.join([(1, 1); 6]);
    let lost = Operation::Take(process.next_take(Mode::Wait, 0));
    bench.call(&key, &policy, &lost).await;
    let again = Operation::Take(process.next_take(Mode::Wait, 1));
    let count = granted(&bench.call(&key, &policy, &again).await.1);
    require!(bench, count == 6, "{count} of 6 requests depart again");
    let count = bench.depart(&key, &policy, 10).await;
    require!(bench, count == 4, "{count} more depart, of 4 that are left");

    // That answer arrived. The next call does not reach the store, so there is nothing to take back.
    process.next_take(Mode::Wait, 0);
    let again = Operation::Take(process.next_take(Mode::Wait, 3));
    let count = granted(&bench.call(&key, &policy, &again).await.1);
    require!(
        bench,
        count == 0,
        "{count} departures are taken back that had arrived"
    );
}

pub(super) async fn calls_that_were_overtaken_change_nothing(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/365d"));
    let mut process = bench.process(&key, &policy);
    process.join([(1, 1); 3]);
    let early = Operation::Take(process.next_take(Mode::Wait, 0));
    let late = Operation::Take(process.next_take(Mode::Wait, 0));
    let count = granted(&bench.call(&key, &policy, &late).await.1);
    require!(bench, count == 3, "{count} of 3 requests depart");
    for (operation, name) in [(&early, "an earlier call"), (&late, "the same call again")] {
        let (_, taken) = bench.call(&key, &policy, operation).await;
        require!(
            bench,
            taken.is_outdated && taken.grants.is_empty(),
            "{name} is answered with {taken:?}"
        );
    }
    let count = bench.depart(&key, &policy, 10).await;
    require!(bench, count == 7, "{count} more depart, of 7 that are left");
}

//! Many requests in one call, and many calls at once.

use super::bench::Bench;
use super::policies::log;
use super::{any_wait, at_once, granted, judge, refused, require};
use crate::store::{Ask, Reserve, Store, Word};

/// Each has the slot that its cost allows behind those ahead of it; those who will not wait are
/// passed over.
pub(super) async fn asks_of_several_costs_are_answered_in_order<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(4));
    let cost = |cost, ask| Ask { cost, ..ask };
    let asks = [
        cost(3, any_wait(1)),
        cost(2, at_once(2)),
        any_wait(1),
        cost(4, any_wait(1)),
        at_once(1),
        cost(2, any_wait(3)),
        any_wait(2),
    ];
    let answer = bench.ask(&key, &policy, &asks).await;
    let (slots, waits) = (granted(&answer), refused(&answer));
    require!(
        bench,
        slots.len() == 8,
        "{} of the 8 that would wait are granted",
        slots.len()
    );
    require!(
        bench,
        waits.len() == 3,
        "{} of the 3 that would not wait are refused",
        waits.len()
    );
    let at_once = slots.iter().filter(|slot| slot.at == answer.now());
    let weight: u32 = at_once.map(|slot| slot.cost).sum();
    require!(
        bench,
        weight == 4,
        "requests worth {weight} instead of 4 depart at once"
    );
    judge::keeps(bench, &policy, &slots);
}

/// Many tasks reserve at once, and their slots together keep the limit.
pub(super) async fn concurrent_reservations_share_no_slot<S: Store>(bench: &Bench<S>) {
    const TASKS: u32 = 40;
    let (key, policy) = (bench.key("key"), log(5));
    let reserve = |task: u32| {
        let (store, key, policy) = (bench.store.clone(), key.clone(), policy.clone());
        tokio::spawn(async move {
            let mut answers = Vec::new();
            for count in [1, 1 + task % 3] {
                let asks = [any_wait(count)];
                let reserve = Reserve {
                    asks: &asks,
                    ..Reserve::new(&key, &policy)
                };
                // The reply is no part of the state of this task, as it need not be `Sync`.
                let reply = store.reserve(&reserve);
                answers.push(reply.await);
            }
            answers
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(reserve).collect();
    let mut slots = Vec::new();
    for task in tasks {
        for answer in task.await.expect("a reservation does not panic") {
            let answer = answer.unwrap_or_else(|error| {
                bench.fail(format_args!("a reservation failed: {error:?}"));
            });
            slots.extend(granted(&answer));
        }
    }
    let asked: u32 = (0..TASKS).map(|task| 2 + task % 3).sum();
    require!(
        bench,
        slots.len() == asked as usize,
        "{} slots for {asked} requests",
        slots.len()
    );
    judge::keeps(bench, &policy, &slots);
}

/// Or else the limiter would take it for one that needs a line.
pub(super) async fn a_local_store_answers_at_once<S: Store>(bench: &Bench<S>) {
    if !bench.store.is_local() {
        return;
    }
    let (key, policy) = (bench.key("key"), log(1));
    let mut reply = bench.store.reserve(&Reserve::new(&key, &policy));
    require!(
        bench,
        reply.take_ready().is_some(),
        "it says that it is local, and is not ready"
    );
    let mut reply = bench.store.heed(&key, &policy, Word::None);
    require!(
        bench,
        reply.take_ready().is_some(),
        "it says that it is local, and does not heed at once"
    );
}

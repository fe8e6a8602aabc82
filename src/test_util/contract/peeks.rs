//! Looking without asking for anything.

use super::bench::Bench;
use super::policies::{each, kinds, policy};
use super::remaining::check_fresh;
use super::{LONG, any_wait, at_once, granted, refused, require, waits};
use crate::algorithm::micros;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, Reserve, Store};

/// On a fresh key, all remain, and the next departs at once: however often one has looked.
pub(super) async fn a_peek_at_a_fresh_key_finds_nothing<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let most = policy.largest_cost();
        for cost in (1..=most).cycle().take(20) {
            let (_, answer) = bench.promise(&key, &policy, cost).await;
            check_fresh(bench, &policy, &answer, "on a fresh key");
        }
        let ask = Ask {
            cost: most,
            ..at_once(1)
        };
        let departs = !granted(&bench.ask(&key, &policy, &[ask]).await).is_empty();
        require!(
            bench,
            departs,
            "{name}: after some peeks, nothing departs at once"
        );
    }
}

/// Whatever one looks for, and however often.
pub(super) async fn a_peek_records_nothing<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        bench.slots(&key, &policy, 4).await;
        let (promised, before) = bench.promise(&key, &policy, 1).await;
        for round in 0..8 {
            let costly = Ask {
                cost: policy.largest_cost(),
                ..any_wait(2)
            };
            let asks = [any_wait(3), costly, at_once(2), waits(1, 1_000)];
            let reserve = Reserve {
                asks: &asks,
                not_before: before.now() + round * micros(LONG),
                ..Reserve::new(&key, &policy)
            };
            bench.peek(&reserve).await;
            let (again, answer) = bench.promise(&key, &policy, 1).await;
            require!(
                bench,
                again == promised,
                "{name}: a peek tells {promised}, and the next {again}"
            );
            let left = (before.remaining(), answer.remaining());
            require!(
                bench,
                left.0 == left.1,
                "{name}: {} remained, then {}",
                left.0,
                left.1
            );
            let resets = [&before, &answer].map(|it| it.now() + micros(it.reset()));
            require!(
                bench,
                resets[0] == resets[1],
                "{name}: the resets are {resets:?}"
            );
        }
        let at = bench.slot(&key, &policy).await.at;
        require!(
            bench,
            at == promised,
            "{name}: a peek tells {promised}, the slot is at {at}"
        );
    }
}

/// Of the same cost, if nobody comes in between.
pub(super) async fn the_wait_that_a_peek_tells_is_what_the_next_has<S: Store>(bench: &Bench<S>) {
    for (name, quota) in each(bench, 5).await {
        let (key, policy) = (bench.key(name), policy(&[quota]));
        let most = policy.largest_cost();
        for cost in [1, most, 2, 1, 3, 1, 1, most, 2] {
            let (promised, _) = bench.promise(&key, &policy, cost).await;
            let ask = Ask {
                cost,
                ..any_wait(1)
            };
            let answer = bench.ask(&key, &policy, &[ask]).await;
            let (at, expected) = (granted(&answer)[0].at, promised.max(answer.now()));
            require!(
                bench,
                at == expected,
                "{name}: for a cost of {cost} a peek tells {promised}, the slot is at {at}"
            );
        }
    }
    let leaky = Algorithm::LeakyBucket { capacity: 3 };
    let (key, policy) = (
        bench.key("full"),
        policy(&[Quota::new(4, LONG).algorithm(leaky)]),
    );
    let answer = bench.ask(&key, &policy, &[any_wait(9)]).await;
    let told = answer.now() + refused(&answer).last().copied().unwrap_or(0);
    let (promised, _) = bench.promise(&key, &policy, 1).await;
    require!(
        bench,
        promised == told,
        "a full bucket tells {told}, a peek at it {promised}"
    );
}

/// No request of a peek waits for those ahead of it, as they get nothing either.
pub(super) async fn a_peek_answers_each_request_alone<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        bench.slots(&key, &policy, 3).await;
        let most = policy.largest_cost();
        let costly = |count| Ask {
            cost: most,
            ..any_wait(count)
        };
        let mut expected = Vec::new();
        for cost in [1, 1, most, most, 1] {
            expected.push(bench.promise(&key, &policy, cost).await.0);
        }
        let asks = [any_wait(2), costly(2), at_once(1)];
        let reserve = Reserve {
            asks: &asks,
            ..Reserve::new(&key, &policy)
        };
        let answer = bench.peek(&reserve).await;
        let told: Vec<_> = refused(&answer)
            .iter()
            .map(|wait| answer.now() + wait)
            .collect();
        require!(
            bench,
            told == expected,
            "{name}: a peek tells {told:?} instead of {expected:?}"
        );
    }
}

/// It tells of the slot that was given back, which then serves who asks for it.
pub(super) async fn a_peek_leaves_a_free_slot_free<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let mut slots = bench.slots(&key, &policy, 7).await;
        let free = slots.remove(3);
        bench
            .release(&key, &policy, std::slice::from_ref(&free))
            .await;
        for _ in 0..3 {
            let (promised, _) = bench.promise(&key, &policy, 1).await;
            require!(
                bench,
                promised == free.at,
                "{name}: {} is free, and a peek tells {promised}",
                free.at
            );
        }
        let at = bench.slot(&key, &policy).await.at;
        require!(
            bench,
            at == free.at,
            "{name}: {} was free, the slot is at {at}",
            free.at
        );
    }
}

//! Batches, and the state of keys and policies.

use std::sync::Arc;

use super::bench::{Bench, attempt, granted, policy, policy_with, settle, take};
use super::require;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::contents::{Command, Mode, Operation};
use tower_throttle::store::{Call, StoreError, Taken};

/// New keys of one shard.
fn keys(bench: &Bench, count: usize) -> Vec<Key> {
    let first = bench.key();
    let shard = bench.store.shard(&first);
    let same = std::iter::repeat_with(|| bench.key()).take(100_000);
    let same = same.filter(|key| bench.store.shard(key) == shard);
    [first].into_iter().chain(same).take(count).collect()
}

async fn batch(
    bench: &Bench,
    policy: &Policy,
    operations: &[(&Key, Operation)],
) -> Vec<Result<Taken, StoreError>> {
    let calls = operations.iter();
    let calls = calls.map(|(key, operation)| Call::new(key, policy, operation));
    bench.send(calls.collect()).await.answers
}

pub(super) async fn batches_answer_each_operation(bench: &Arc<Bench>) {
    let policy = policy("100/365d");
    let keys = keys(bench, 40);
    for round in 1..=2 {
        let operations = keys
            .iter()
            .zip(1..)
            .map(|(key, count)| (key, attempt(count, 1)));
        let answers = batch(bench, &policy, &operations.collect::<Vec<_>>()).await;
        for (nth, answer) in answers.iter().enumerate() {
            let count = answer.as_ref().map_or(0, granted);
            let expected = (nth + 1).min(100 - (nth + 1) * (round - 1));
            require!(
                bench,
                count as usize == expected,
                "operation {nth} of a batch is answered with {answer:?}"
            );
        }
    }

    // Operations on one key are applied in their order.
    let key = &keys[0];
    let (_, taken) = bench.call(key, &policy, &attempt(100, 1)).await;
    let recorded = taken.grants.last().map_or(0, |grant| grant.recorded);
    let refund = settle(recorded, -1);
    let peek = Operation::Take(take(Mode::Peek, 1, 1));
    let operations = [
        (key, refund),
        (&keys[1], peek),
        (key, attempt(2, 1)),
        (key, Operation::Control(Command::Reset)),
        (key, attempt(200, 1)),
    ];
    let answers = batch(bench, &policy, &operations).await;
    let counts: Vec<_> = answers
        .iter()
        .map(|it| it.as_ref().map_or(0, granted))
        .collect();
    require!(
        bench,
        counts == [0, 0, 1, 0, 100],
        "a batch is answered with {answers:?}"
    );
}

pub(super) async fn a_cost_beyond_the_quotas_is_refused_alone(bench: &Arc<Bench>) {
    let policy = policy("10/365d");
    let keys = keys(bench, 2);
    let operations = [(&keys[0], attempt(1, 11)), (&keys[1], attempt(1, 10))];
    let answers = batch(bench, &policy, &operations).await;
    let is_refused = match &answers[0] {
        Ok(taken) => taken.grants.is_empty(),
        Err(error) => !error.is_outage(),
    };
    require!(
        bench,
        is_refused,
        "a cost of 11 is answered with {:?}",
        answers[0]
    );
    let count = answers[1].as_ref().map_or(0, granted);
    require!(
        bench,
        count == 1,
        "the next key is answered with {:?}",
        answers[1]
    );
    let count = bench.depart(&keys[0], &policy, 10).await;
    require!(
        bench,
        count == 10,
        "{count} of 10 depart after a cost of 11 was refused"
    );
}

pub(super) async fn any_text_is_a_key(bench: &Arc<Bench>) {
    let policy = policy("1/365d");
    let long = "x".repeat(300);
    let longer = format!("{long}y");
    let texts = [
        "a", "A", "a ", " a", "é", "e\u{301}", "\0", "a\0b", "a\0c", "{a}", "{a}b", "{b}a", "}",
        "*", "a*", "a:b", "a}:b", "%41", "\r\n", "💥", &long, &longer,
    ];
    let prefix = bench.key();
    let keys = texts.iter().flat_map(|text| {
        [
            Key::new(format!("{prefix}{text}")),
            Key::new(format!("{text}{prefix}")),
        ]
    });
    let keys: Vec<_> = keys.collect();
    for expected in [1, 0] {
        for key in &keys {
            let count = bench.depart(key, &policy, 1).await;
            require!(
                bench,
                count == expected,
                "{count} depart, not {expected}, of {key:?}"
            );
        }
    }
}

pub(super) async fn policies_of_other_names_do_not_count(bench: &Arc<Bench>) {
    let key = bench.key();
    let names = [None, Some("orders"), Some("Orders"), Some("reports")];
    let policies = names.map(|name| {
        policy_with("3/365d", |builder| match name {
            None => builder,
            Some(name) => builder.name(name),
        })
    });
    for expected in [3, 0] {
        for policy in &policies {
            let count = bench.depart(&key, policy, 5).await;
            let name = policy.name();
            require!(
                bench,
                count == expected,
                "{count} depart, not {expected}, of {name:?}"
            );
        }
    }
}

pub(super) async fn changed_quotas_keep_departures(bench: &Arc<Bench>) {
    for more in ["", " + 1000/365d gcra burst=1000"] {
        let key = bench.key();
        for (limit, expected) in [(10, 10), (25, 15), (5, 0), (26, 1)] {
            let policy = policy(&format!("{limit}/365d{more}"));
            let count = bench.depart(&key, &policy, 100).await;
            require!(
                bench,
                count == expected,
                "{count} depart, not {expected}, after the limit was changed to {limit}"
            );
        }
    }
}

pub(super) async fn unrecognized_values_are_reported_and_kept(bench: &Arc<Bench>) {
    let policy = policy("10/365d");
    let keys = keys(bench, 2);
    let [key, other] = &keys[..] else {
        bench.fail(format_args!("the shard of a new key holds no other key"));
    };
    bench.depart(key, &policy, 5).await;
    let Some(own) = bench.hooks.read(key, &policy) else {
        return;
    };
    let mut marked = own.clone();
    marked[0] ^= 1;
    let values = [
        &b"1"[..],
        b"a text that is somewhat longer",
        &[0; 40],
        &own[..own.len() / 2],
        &marked,
    ];
    for value in values {
        if !bench.hooks.write(key, &policy, value) {
            return;
        }
        for operation in [
            attempt(1, 1),
            Operation::Take(take(Mode::Peek, 1, 1)),
            settle(1, -1),
            Operation::Control(Command::Reset),
        ] {
            let neighbour = (other, Operation::Take(take(Mode::Peek, 1, 1)));
            let answers = batch(bench, &policy, &[(key, operation), neighbour]).await;
            let is_reported = answers[0]
                .as_ref()
                .is_err_and(|error| error.is_unrecognized_value() && !error.is_outage());
            require!(
                bench,
                is_reported,
                "{value:?} is answered with {:?}",
                answers[0]
            );
            require!(
                bench,
                answers[1].is_ok(),
                "the next key is answered with {:?}",
                answers[1]
            );
            let kept = bench.hooks.read(key, &policy);
            require!(
                bench,
                kept.as_deref() == Some(value),
                "{value:?} is overwritten"
            );
        }
    }
}

//! Batches, and the state of keys and policies.

use std::sync::Arc;

use super::bench::{Bench, Entry, LONG, attempt, granted, policy, policy_with, settle, take};
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::contents::{Command, Flow, Mode, Operation, Take};
use tower_throttle::store::{Call, StoreError, Taken};

/// New keys of one shard, under a policy.
fn entries(bench: &Arc<Bench>, policy: &Policy, count: usize) -> Vec<Entry> {
    let first = bench.entry(policy.clone());
    let shard = bench.store.shard(&first.key);
    let others = std::iter::repeat_with(|| first.other_key()).take(100_000);
    let same = others.filter(|it| bench.store.shard(&it.key) == shard);
    let entries: Vec<_> = same.take(count).collect();
    if entries.len() < count {
        bench.fail("the shard of a new key holds no other key");
    }
    entries
}

async fn batch(
    bench: &Bench,
    operations: &[(&Entry, Operation)],
) -> Vec<Result<Taken, StoreError>> {
    let calls = operations.iter();
    let calls = calls.map(|(entry, operation)| Call::new(&entry.key, &entry.policy, operation));
    bench.send(calls.collect()).await.answers
}

fn counts(answers: &[Result<Taken, StoreError>]) -> Vec<u32> {
    let counts = answers.iter().map(|it| it.as_ref().map_or(0, granted));
    counts.collect()
}

pub(super) async fn batches_answer_each_operation(bench: &Arc<Bench>) {
    let entries = entries(bench, &policy("100/365d"), 20);
    for round in 1..=2 {
        let operations = entries.iter().zip(1..);
        let operations = operations.map(|(entry, count)| (entry, attempt(count, 1)));
        let answers = batch(bench, &operations.collect::<Vec<_>>()).await;
        let expected = (1..=20).map(|count| count.min(100 - count * (round - 1)));
        if counts(&answers) != expected.collect::<Vec<u32>>() {
            bench.fail(format_args!("a batch is answered with {answers:?}"));
        }
    }

    // Operations on one key are applied in their order.
    let [entry, other, ..] = &entries[..] else {
        return;
    };
    let (_, taken) = entry.call(&attempt(100, 1)).await;
    let recorded = taken.grants.last().map_or(0, |grant| grant.recorded);
    let operations = [
        (entry, settle(recorded, -1)),
        (other, Operation::Take(take(Mode::Peek, 1, 1))),
        (entry, attempt(2, 1)),
        (entry, Operation::Control(Command::Reset)),
        (entry, attempt(200, 1)),
    ];
    let answers = batch(bench, &operations).await;
    if counts(&answers) != [0, 0, 1, 0, 100] {
        bench.fail(format_args!("a batch is answered with {answers:?}"));
    }
}

pub(super) async fn a_cost_beyond_the_quotas_is_refused_alone(bench: &Arc<Bench>) {
    let entries = entries(bench, &policy("10/365d"), 2);
    let operations = [(&entries[0], attempt(1, 11)), (&entries[1], attempt(1, 10))];
    let answers = batch(bench, &operations).await;
    let is_outage = answers[0].as_ref().is_err_and(StoreError::is_outage);
    if is_outage || counts(&answers) != [0, 1] {
        bench.fail(format_args!(
            "costs of 11 and 10 are answered with {answers:?}"
        ));
    }
    entries[0]
        .departs(10, 10, "after a cost of 11 was refused")
        .await;
    let when = "after 10 beside a cost that was refused";
    entries[1].departs(10, 0, when).await;
}

pub(super) async fn any_text_is_a_key(bench: &Arc<Bench>) {
    let long = "x".repeat(300);
    let longer = format!("{long}y");
    let texts = [
        "a", "A", "a ", " a", "é", "e\u{301}", "\0", "a\0b", "a\0c", "{a}", "{a}b", "{b}a", "}",
        "*", "a*", "a:b", "a}:b", "%41", "\r\n", "💥", &long, &longer,
    ];
    let any = bench.entry(policy("1/365d"));
    let prefix = &any.key;
    let keys = texts
        .iter()
        .flat_map(|text| [format!("{prefix}{text}"), format!("{text}{prefix}")]);
    let entries = keys.map(|key| Entry {
        key: Key::new(key),
        ..any.clone()
    });
    let entries: Vec<_> = entries.collect();
    for expected in [1, 0] {
        for entry in &entries {
            let of = format!("of {:?}", entry.key);
            entry.departs(1, expected, &of).await;
        }
    }
}

pub(super) async fn policies_of_other_names_do_not_count(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("3/365d"));
    let named = ["orders", "Orders", "reports"]
        .map(|name| entry.under(policy_with("3/365d", |builder| builder.name(name))));
    for expected in [3, 0] {
        for entry in named.iter().chain([&entry]) {
            let of = format!("of {:?}", entry.policy.name());
            entry.departs(5, expected, &of).await;
        }
    }
    // In one batch, too.
    let key = bench.key();
    let named = named.map(|it| Entry {
        key: key.clone(),
        ..it
    });
    for (asked, expected) in [([1, 2, 3], [1, 2, 3]), ([5, 5, 5], [2, 1, 0])] {
        let operations = named.iter().zip(asked);
        let operations = operations.map(|(entry, count)| (entry, attempt(count, 1)));
        let answers = batch(bench, &operations.collect::<Vec<_>>()).await;
        if counts(&answers) != expected {
            bench.fail(format_args!(
                "a batch for one key is answered with {answers:?}"
            ));
        }
    }
    // Joined, with or without a separator, the first two would be alike.
    for separator in ["", ":", "/", ".", "|", "-", "_", ","] {
        let (key, name) = (bench.key(), format!("a{separator}b"));
        for (name, key) in [
            (&*name, key.to_string()),
            ("a", format!("b{separator}{key}")),
            ("b", format!("{key}{separator}a")),
        ] {
            let entry = Entry {
                key: Key::new(key),
                policy: policy_with("3/365d", |builder| builder.name(name)),
                bench: bench.clone(),
            };
            let of = format!("of {name:?} and {:?}", entry.key);
            entry.departs(5, 3, &of).await;
        }
    }
}

pub(super) async fn changed_quotas_keep_departures(bench: &Arc<Bench>) {
    for more in ["", " + 1000/365d gcra burst=1000"] {
        let any = bench.entry(policy("1/s"));
        for (limit, expected) in [(10, 10), (25, 15), (5, 0), (26, 1)] {
            let entry = any.under(policy(&format!("{limit}/365d{more}")));
            let when = "after the limit was changed";
            entry.departs(100, expected, when).await;
        }
    }
}

pub(super) async fn unrecognized_values_are_reported_and_kept(bench: &Arc<Bench>) {
    let entries = entries(bench, &policy("10/365d"), 3);
    let (entry, other) = (&entries[0], &entries[1]);
    entry.depart(5).await;
    let Some(own) = entry.value() else {
        return;
    };
    // A long value: many processes have announced a request, of a share of their own.
    let of_share = |process: u64| Take {
        process: process << 11 | 1 << 7,
        flow: Flow { id: 9, weight: 1 },
        number: 7,
        ..take(Mode::Wait, 1, 1)
    };
    let crowd = entries[2].under(policy("10/365d gcra burst=10"));
    crowd.depart(10).await;
    for process in 1..=60 {
        crowd.call(&Operation::Take(of_share(process))).await;
    }
    let long = crowd.value().unwrap_or_default();
    let [mut marked, mut later] = [(); 2].map(|()| own.clone());
    marked[0] ^= 1;
    // The version of the format.
    later[2] += 1;
    let mut values = vec![b"1".to_vec(), b"a text that is somewhat longer".to_vec()];
    values.extend([vec![0; 40], marked, later]);
    values.extend((3..own.len()).map(|end| own[..end].to_vec()));
    values.extend((long.len() - 60..long.len()).map(|end| long[..end].to_vec()));
    let peek = || Operation::Take(take(Mode::Peek, 1, 1));
    let mut process = entry.process();
    process.join([(1, 1)]);
    let asked = process.next_take(0);
    let reset = Operation::Control(Command::Reset);
    for quotas in [LONG[0], LONG[2], LONG[3], "1000/365d", "10/s + 100/365d"] {
        let entry = entry.under(policy(quotas));
        for value in &values {
            if !bench.hooks.write(&entry.key, &entry.policy, value) {
                return;
            }
            let others = [attempt(1, 1), peek(), settle(1, -1), reset.clone()];
            let waits = [60, 61].map(|process| Operation::Take(of_share(process)));
            let others = others.into_iter().chain([asked.clone()]);
            for operation in others.chain(waits) {
                let answers = batch(bench, &[(&entry, operation), (other, peek())]).await;
                let is_reported = answers[0]
                    .as_ref()
                    .is_err_and(|error| error.is_unrecognized_value() && !error.is_outage());
                if !is_reported || answers[1].is_err() {
                    bench.fail(format_args!(
                        "{value:?}, and the next key, is answered with {answers:?}"
                    ));
                }
            }
            if entry.value().as_ref() != Some(value) {
                bench.fail(format_args!("{value:?} is overwritten"));
            }
        }
    }
}

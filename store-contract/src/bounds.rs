//! No quota is exceeded, and capacity does not stay unused.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

use super::bench::{Bench, MS, SECOND, attempt, granted, policy, policy_with, take};
use super::{judge, require};
use tower_throttle::Policy;
use tower_throttle::store::Call;
use tower_throttle::store::contents::{Command, Mode, Operation, Take};

/// How far ahead departures are granted: five windows of a second.
const HORIZON: u64 = 5 * SECOND;

/// The result of a task. A clause may have failed there.
fn joined<T>(result: Result<T, JoinError>) -> T {
    result.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Three processes call at the same time, with requests of several costs. Each cost is multiplied.
async fn crowd(bench: &Arc<Bench>, policy: &Policy, factor: u32) -> Vec<judge::Departure> {
    let key = bench.key();
    let start = bench.ping(&key).await.now;
    if !policy.buffer().is_zero() {
        // Few may depart at first, so that windows fill in two steps.
        let allow = Command::Allow {
            unit: 0,
            units: 10 * factor,
            span: 900 * MS,
            evidence: u64::MAX,
        };
        bench.control(&key, policy, allow).await;
    }
    let processes = [[1, 1, 1, 1], [2, 2, 2, 2], [1, 3, 1, 2]].map(|costs| {
        let (bench, key, policy) = (bench.clone(), key.clone(), policy.clone());
        tokio::spawn(async move {
            let mut process = bench.process(&key, &policy);
            process.horizon = HORIZON;
            for nth in 0..4 {
                let cost = |place: usize| costs[place % 4] * factor;
                let arrival = |place: usize| start + nth * MS + place as u64;
                process.join((0..12).map(|place| (arrival(place), cost(place))));
                process.take(Mode::Wait).await;
            }
            process.number += 1;
            (
                process.id,
                process.number,
                process.departures.into_inner(),
                process.queue,
            )
        })
    });
    let mut departures = Vec::new();
    let mut left = Vec::new();
    for process in processes {
        let (id, number, departed, queue) = joined(process.await);
        departures.extend(departed);
        left.push((id, number, queue));
    }
    // The demand that they announced last is served in turn.
    for (id, number, queue) in left {
        let mut process = bench.process(&key, policy);
        (process.id, process.number, process.queue) = (id, number, queue);
        process.horizon = HORIZON;
        while !process.take(Mode::Wait).await.grants.is_empty() {}
        process.queue.clear();
        process.take(Mode::Wait).await;
        departures.append(&mut process.departures.into_inner());
    }
    departures
}

/// Asserts the promises of all quotas of a policy, and that it lets so many units depart.
async fn check(bench: &Arc<Bench>, policy: &Policy, factor: u32, least: u32) {
    let departures = crowd(bench, policy, factor).await;
    for quota in policy.quotas() {
        if let Some(fault) = judge::fault(quota, &departures) {
            bench.fail(format_args!("{fault}"));
        }
    }
    let units: u32 = departures.iter().map(|it| it.units).sum();
    let quotas = policy.quotas();
    require!(
        bench,
        units >= least,
        "{units} units depart within {HORIZON} µs under {quotas:?}, which allow {least}"
    );
}

pub(super) async fn no_quota_is_exceeded(bench: &Arc<Bench>) {
    for (quota, factor, least) in [
        ("20/s", 1, 80),
        ("1001/s", 50, 3_500),
        ("20/s sliding-buckets buckets=7", 1, 60),
        ("20/s gcra burst=5", 1, 60),
        ("20/s spacing", 1, 40),
        ("20/s leaky-bucket capacity=50", 1, 40),
        ("20/s fixed-window", 1, 60),
        ("20/s fixed-window start=first-request", 1, 60),
    ] {
        for buffer in [0, 30] {
            let buffer = Duration::from_millis(buffer);
            let policy = policy_with(quota, |builder| builder.buffer(buffer));
            check(bench, &policy, factor, least).await;
        }
    }
}

pub(super) async fn joint_quotas_all_hold(bench: &Arc<Bench>) {
    for (quotas, least) in [
        ("20/s + 50/3s", 60),
        ("20/s spacing + 30/2s fixed-window + 60/s gcra burst=3", 30),
        (
            "20/s fixed-window start=first-request + 30/2s sliding-buckets buckets=5",
            30,
        ),
    ] {
        check(bench, &policy(quotas), 1, least).await;
    }
}

pub(super) async fn concurrent_calls_are_atomic(bench: &Arc<Bench>) {
    let key = bench.key();
    let calls = (0..8).map(|_| {
        let (bench, key) = (bench.clone(), key.clone());
        tokio::spawn(async move {
            let policy = policy("50/365d");
            let mut departed = 0;
            for _ in 0..10 {
                let (_, taken) = bench.call(&key, &policy, &attempt(1, 1)).await;
                departed += granted(&taken);
            }
            departed
        })
    });
    let mut departed = 0;
    for calls in calls.collect::<Vec<_>>() {
        departed += joined(calls.await);
    }
    require!(
        bench,
        departed == 50,
        "{departed} of 80 requests depart under 50/365d"
    );
}

/// Longer guards record departures later, so that the log fills without waiting.
pub(super) async fn a_long_log_stays_small(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("1000000/h"));
    for batch in 0..10 {
        let operations = (0..100).map(|nth| {
            Operation::Take(Take {
                guard: (batch * 100 + nth) * 3_600 * MS,
                ..take(Mode::Try, 1, 900)
            })
        });
        let calls = operations.map(|operation| Call::new(&key, &policy, &operation));
        let answered = bench.send(calls.collect()).await;
        let taken = answered.answers.iter().flatten();
        let departed: u32 = taken.map(granted).sum();
        require!(bench, departed == 100, "{departed} of 100 requests depart");
    }
    let left = bench.call(&key, &policy, &attempt(1, 100_001)).await.1;
    require!(
        bench,
        left.grants.is_empty(),
        "more than a million units depart"
    );
    let size = bench
        .hooks
        .read(&key, &policy)
        .map_or(0, |value| value.len());
    require!(bench, size <= 12_000, "the value takes {size} bytes");
}

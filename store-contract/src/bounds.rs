//! No quota is exceeded, and capacity does not stay unused.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::bench::{Bench, Entry, MS, SECOND, attempt, granted, policy, policy_with, take};
use super::judge;
use tower_throttle::Policy;
use tower_throttle::store::Call;
use tower_throttle::store::contents::{Command, Mode, Operation, Take};

/// How far ahead departures are granted: five windows of a second.
const HORIZON: u64 = 5 * SECOND;

/// The results of tasks. A clause may have failed there.
async fn joined<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for task in tasks {
        let result = task.await;
        results.push(result.unwrap_or_else(|it| std::panic::resume_unwind(it.into_panic())));
    }
    results
}

/// Three processes call at the same time, with requests of several costs. Each cost is multiplied.
async fn crowd(bench: &Arc<Bench>, policy: &Policy, factor: u32) -> Vec<judge::Departure> {
    let entry = bench.entry(policy.clone());
    let start = entry.now().await;
    if !policy.buffer().is_zero() {
        // Few may depart at first, so that windows fill in two steps.
        let allow = Command::Allow {
            unit: 0,
            units: 10 * factor,
            span: 900 * MS,
            evidence: u64::MAX,
        };
        entry.control(allow).await;
    }
    let processes = [[1, 1, 1, 1], [2, 2, 2, 2], [1, 3, 1, 2]].map(|costs| {
        let mut process = entry.process();
        process.horizon = HORIZON;
        tokio::spawn(async move {
            for nth in 0..4 {
                let arrival = start + nth * MS;
                process.join((0..12).map(|it| (arrival + it as u64, costs[it % 4] * factor)));
                process.take().await;
            }
            process
        })
    });
    let mut departures = Vec::new();
    // The demand that they announced last is served in turn.
    for mut process in joined(processes.into()).await {
        while !process.take().await.grants.is_empty() {}
        process.queue.clear();
        process.take().await;
        departures.append(&mut process.departures);
    }
    departures
}

/// Checks the promises of all quotas of a policy, and that it lets so many units depart.
async fn check(bench: &Arc<Bench>, policy: &Policy, factor: u32, least: u32) {
    let departures = crowd(bench, policy, factor).await;
    let quotas = policy.quotas();
    for quota in quotas {
        if let Some(fault) = judge::fault(quota, &departures) {
            bench.fail(fault);
        }
    }
    let units: u32 = departures.iter().map(|it| it.units).sum();
    if units < least {
        bench.fail(format_args!(
            "{units} units depart within {HORIZON} µs under {quotas:?}, which allow {least}"
        ));
    }
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
    let windows = "20/s fixed-window start=first-request + 30/2s sliding-buckets buckets=5";
    for (quotas, least) in [
        ("20/s + 50/3s", 60),
        ("20/s spacing + 30/2s fixed-window + 60/s gcra burst=3", 30),
        (windows, 30),
    ] {
        check(bench, &policy(quotas), 1, least).await;
    }
}

pub(super) async fn concurrent_calls_are_atomic(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("50/365d"));
    let probe = bench.entry(policy("1/365d"));
    probe.departs(1, 1, "first").await;
    let other = match probe.by_other_instance().depart(1).await {
        0 => entry.by_other_instance(),
        // Its state is its own.
        _ => entry.clone(),
    };
    let calls = (0..8).map(|nth| {
        let entry = [&entry, &other][nth % 2].clone();
        tokio::spawn(async move {
            let mut departed = 0;
            for _ in 0..10 {
                departed += entry.depart(1).await;
            }
            departed
        })
    });
    let departed: u32 = joined(calls.collect()).await.into_iter().sum();
    if departed != 50 {
        entry.fail(format_args!("{departed} of 80 requests depart"));
    }
    // A write for one key may not undo that for another.
    let others = (0..8).map(|nth| {
        let key = bench.key();
        let entry = Entry {
            key,
            ..[&entry, &other][nth % 2].clone()
        };
        tokio::spawn(async move {
            let mut departed = 0;
            for _ in 0..60 {
                departed += entry.depart(1).await;
            }
            departed
        })
    });
    for departed in joined(others.collect()).await {
        if departed != 50 {
            entry.fail(format_args!(
                "{departed} of 60 requests depart beside those of other keys"
            ));
        }
    }
}

/// Longer guards record departures later, so that the log fills without waiting.
pub(super) async fn a_long_log_stays_small(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("1000000/h"));
    for batch in 0..50 {
        let calls = (0..20).map(|nth| {
            let take = Take {
                guard: (batch * 20 + nth) * 3_600 * MS,
                ..take(Mode::Try, 1, 900)
            };
            Call::new(&entry.key, &entry.policy, &Operation::Take(take))
        });
        let answered = bench.send(calls.collect()).await;
        let departed: u32 = answered.answers.iter().flatten().map(granted).sum();
        if departed != 20 {
            entry.fail(format_args!("{departed} of 20 requests depart"));
        }
    }
    if granted(&entry.call(&attempt(1, 100_001)).await.1) > 0 {
        entry.fail("more than a million units depart");
    }
    let size = entry.value().map_or(0, |value| value.len());
    if size > 12_000 {
        entry.fail(format_args!("the value takes {size} bytes"));
    }
}

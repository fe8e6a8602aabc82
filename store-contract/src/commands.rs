//! Pauses, allowances, resumes and resets.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, LONG, SECOND, attempt, granted, policy, policy_with};
use tower_throttle::Policy;
use tower_throttle::store::contents::Command;

fn pause(seconds: u64) -> Command {
    Command::Pause {
        span: seconds * SECOND,
        evidence: u64::MAX,
    }
}

fn allow(units: u32) -> Command {
    Command::Allow {
        unit: 0,
        units,
        span: 60 * SECOND,
        evidence: u64::MAX,
    }
}

fn named(quota: &str, name: &str) -> Policy {
    policy_with(quota, |builder| builder.name(name))
}

pub(super) async fn nothing_departs_during_a_pause(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(quota));
        let before = entry.now().await;
        let (now, taken) = entry.control(pause(60)).await;
        let end = taken.paused_until;
        if !(before..=now).contains(&end.saturating_sub(60 * SECOND)) {
            entry.fail(format_args!(
                "a pause of 60 s from {before} or {now} on ends at {end}"
            ));
        }
        entry.departs(1, 0, "during a pause").await;
        if entry.control(pause(1)).await.1.paused_until != end {
            entry.fail("a shorter pause moves the end");
        }
        if entry.control(pause(90)).await.1.paused_until <= end {
            entry.fail("a longer pause does not move the end");
        }
        entry
            .other_key()
            .departs(1, 1, "during a pause of another key")
            .await;
        let other = entry.under(named(quota, "other"));
        other
            .departs(1, 1, "during a pause of another policy")
            .await;
        entry.control(Command::Resume).await;
        entry.departs(1, 1, "after a resume").await;

        let entry = entry.other_key();
        let end = entry.control(pause(60)).await.1.paused_until;
        let mut process = entry.process();
        process.horizon = 100 * SECOND;
        process.join([(1, 1)]);
        let grants = process.take().await.grants;
        if grants.len() != 1 || grants[0].at < end {
            entry.fail(format_args!(
                "{grants:?} is granted during a pause until {end}"
            ));
        }
    }
}

pub(super) async fn a_late_answer_pauses_nothing(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/365d"));
    let before = entry.now().await;
    let (now, _) = entry.control(Command::Resume).await;
    for (evidence, expected) in [(before - 1, 1), (now + 1, 0)] {
        let span = 60 * SECOND;
        entry.control(Command::Pause { span, evidence }).await;
        let when = format!("after an answer to a request of {evidence}, and a resume at {now}");
        entry.departs(1, expected, &when).await;
    }
}

pub(super) async fn no_more_departs_than_is_allowed(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/365d"));
    entry.control(allow(2)).await;
    entry.departs(10, 2, "where 2 are allowed").await;
    entry.control(allow(5)).await;
    entry
        .departs(10, 0, "where a larger number is allowed")
        .await;
    entry.control(Command::Resume).await;
    entry.departs(10, 8, "after a resume").await;

    let entry = entry.other_key();
    entry.control(allow(3)).await;
    let (_, taken) = entry.call(&attempt(3, 2)).await;
    let count = granted(&taken);
    if count != 1 {
        entry.fail(format_args!(
            "{count} requests of cost 2 depart where 3 units are allowed"
        ));
    }
}

pub(super) async fn a_reset_forgets_one_key(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(quota));
        let others = [entry.other_key(), entry.under(named(quota, "other"))];
        let count = entry.depart(10).await;
        for other in &others {
            other.depart(10).await;
        }
        entry.control(pause(60)).await;
        entry.control(Command::Reset).await;
        entry.departs(10, count, "after a reset").await;
        for other in others {
            let when = "after a reset of another key or policy";
            other.departs(10, 0, when).await;
        }
    }
}

pub(super) async fn a_reset_nudges(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/365d"));
    let keys = bench.nudged_keys(1 << 20);
    drop(bench.nudged_keys(1 << 21));
    // A subscription may take a while to begin.
    for _ in 0..1_000 {
        entry.control(Command::Reset).await;
        if !bench.hooks.nudges() || keys.lock().contains(&entry.key) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.fail("a subscriber is not nudged within 10 s");
}

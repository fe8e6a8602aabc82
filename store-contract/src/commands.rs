//! Pauses, allowances, resumes and resets.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::bench::{Bench, LONG, SECOND, attempt, granted, policy, policy_with};
use super::require;
use tower_throttle::Policy;
use tower_throttle::store::Nudge;
use tower_throttle::store::contents::{Command, Mode};

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
        let (key, policy) = (bench.key(), policy(quota));
        let before = bench.ping(&key).await.now;
        let (now, taken) = bench.control(&key, &policy, pause(60)).await;
        let end = taken.paused_until;
        require!(
            bench,
            (before..=now).contains(&end.saturating_sub(60 * SECOND)),
            "a pause of 60 s from {before} or {now} on ends at {end}"
        );
        let count = bench.depart(&key, &policy, 1).await;
        require!(bench, count == 0, "{count} depart during a pause, {quota}");
        let (_, taken) = bench.control(&key, &policy, pause(1)).await;
        require!(
            bench,
            taken.paused_until == end,
            "a shorter pause moves the end"
        );
        let (_, taken) = bench.control(&key, &policy, pause(90)).await;
        require!(
            bench,
            taken.paused_until > end,
            "a longer pause does not move the end"
        );
        for (key, policy) in [(&bench.key(), &policy), (&key, &named(quota, "other"))] {
            let count = bench.depart(key, policy, 1).await;
            require!(bench, count == 1, "a pause holds for another key or policy");
        }
        bench.control(&key, &policy, Command::Resume).await;
        let count = bench.depart(&key, &policy, 1).await;
        require!(bench, count == 1, "nothing departs after a resume, {quota}");

        let key = bench.key();
        let end = bench.control(&key, &policy, pause(60)).await.1.paused_until;
        let mut process = bench.process(&key, &policy);
        process.horizon = 100 * SECOND;
        process.join([(1, 1)]);
        let taken = process.take(Mode::Wait).await;
        require!(
            bench,
            taken.grants.len() == 1 && taken.grants[0].at >= end,
            "{:?} is granted during a pause until {end}, {quota}",
            taken.grants
        );
    }
}

pub(super) async fn a_late_answer_pauses_nothing(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/365d"));
    let before = bench.ping(&key).await.now;
    let (now, _) = bench.control(&key, &policy, Command::Resume).await;
    for (evidence, expected) in [(before - 1, 1), (now + 1, 0)] {
        let span = 60 * SECOND;
        bench
            .control(&key, &policy, Command::Pause { span, evidence })
            .await;
        let count = bench.depart(&key, &policy, 1).await;
        require!(
            bench,
            count == expected,
            "{count} depart after an answer to a request of {evidence}, and a resume at {now}"
        );
    }
}

pub(super) async fn no_more_departs_than_is_allowed(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/365d"));
    bench.control(&key, &policy, allow(2)).await;
    let count = bench.depart(&key, &policy, 10).await;
    require!(bench, count == 2, "{count} depart where 2 are allowed");
    bench.control(&key, &policy, allow(5)).await;
    let count = bench.depart(&key, &policy, 10).await;
    require!(
        bench,
        count == 0,
        "{count} more depart where a larger number is allowed"
    );
    bench.control(&key, &policy, Command::Resume).await;
    let count = bench.depart(&key, &policy, 10).await;
    require!(bench, count == 8, "{count} of 8 depart after a resume");

    let key = bench.key();
    bench.control(&key, &policy, allow(3)).await;
    let (_, taken) = bench.call(&key, &policy, &attempt(3, 2)).await;
    let count = granted(&taken);
    require!(
        bench,
        count == 1,
        "{count} requests of cost 2 depart where 3 units are allowed"
    );
}

pub(super) async fn a_reset_forgets_one_key(bench: &Arc<Bench>) {
    for quota in LONG {
        let policy = policy(quota);
        let name = named(quota, "other");
        let (key, other) = (bench.key(), bench.key());
        let mut counts = Vec::new();
        for (key, policy) in [(&key, &policy), (&other, &policy), (&key, &name)] {
            counts.push(bench.depart(key, policy, 10).await);
        }
        bench.control(&key, &policy, pause(60)).await;
        bench.control(&key, &policy, Command::Reset).await;
        let count = bench.depart(&key, &policy, 10).await;
        require!(
            bench,
            count == counts[0],
            "{count} depart after a reset, {quota}"
        );
        for (key, policy) in [(&other, &policy), (&key, &name)] {
            let count = bench.depart(key, policy, 10).await;
            require!(
                bench,
                count == 0,
                "a reset forgets another key or policy, {quota}"
            );
        }
    }
}

pub(super) async fn a_reset_nudges(bench: &Arc<Bench>) {
    let (key, policy) = (bench.key(), policy("10/365d"));
    let keys = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    for keys in &keys {
        let keys = Arc::downgrade(keys);
        bench.store.subscribe(Box::new(move |nudge: &Nudge| {
            let keys = keys.upgrade();
            keys.map(|keys| keys.lock().push(nudge.key().clone()))
                .is_some()
        }));
    }
    let [keys, dropped] = keys;
    drop(dropped);
    // A subscription may take a while to begin.
    for _ in 0..1_000 {
        bench.control(&key, &policy, Command::Reset).await;
        if !bench.hooks.nudges() || keys.lock().contains(&key) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.fail(format_args!("a subscriber is not nudged within 10 s"));
}

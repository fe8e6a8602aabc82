//! The clock of the store, and what expires by it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::bench::{Bench, Entry, MS, SECOND, attempt, granted, policy, take};
use tower_throttle::Algorithm;
use tower_throttle::store::Call;
use tower_throttle::store::contents::{Command, Known, Mode, Operation, Strict, Take};

/// How far a clock may be corrected during the clause.
const TOLERANCE: i64 = 5 * MS as i64;

pub(super) async fn the_clock_neither_jumps_nor_goes_back(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("10/365d"));
    let start = Instant::now();
    let (mut last, mut server) = (0, None);
    // How far the store's clock is ahead of the local one, at least and at most.
    let (mut least, mut most) = (i64::MIN, i64::MAX);
    for nth in 0..60 {
        let answered = if nth % 3 == 0 {
            let call = Call::new(&entry.key, &entry.policy, &attempt(1, 1));
            bench.send(vec![call]).await
        } else {
            bench.ping(&entry.key).await
        };
        let now = answered.now;
        if now < last {
            bench.fail(format_args!("it shows {now} after {last}"));
        }
        last = now;
        let (first, other) = (*server.get_or_insert(answered.server), answered.server);
        if first != other {
            bench.fail(format_args!(
                "servers {first} and {other} answer for one shard"
            ));
        }
        let local = |at: Instant| (at - start).as_micros() as i64;
        least = least.max(now.cast_signed() - local(answered.received) - 1);
        most = most.min(now.cast_signed() + 1 - local(answered.sent));
        let jump = least - most;
        if jump > TOLERANCE {
            bench.fail(format_args!("it jumps by {jump} µs"));
        }
        sleep(Duration::from_millis(2)).await;
    }
}

pub(super) async fn departures_count_for_their_window(bench: &Arc<Bench>) {
    for quota in [
        "5/400ms",
        "5/400ms sliding-buckets buckets=4",
        "5/400ms fixed-window start=first-request",
        "5/400ms gcra burst=5",
    ] {
        // A store whose answers take over 150 ms each time passes.
        for _ in 0..10 {
            if count_for_their_window(bench.entry(policy(quota))).await {
                break;
            }
        }
    }
}

/// Returns false if an answer came too late to tell.
async fn count_for_their_window(entry: Entry) -> bool {
    let operation = Operation::Take(take(Mode::Try, 5, 1));
    let (start, first) = entry.call(&operation).await;
    let count = granted(&first);
    if count == 0 {
        entry.fail("no request departs");
    }
    // A GCRA forgets them one by one.
    let algorithm = entry.policy.quotas()[0].counted_by();
    if !matches!(algorithm, Algorithm::Gcra { .. }) {
        entry.sleep_until(start + 250 * MS).await;
        let (now, taken) = entry.call(&operation).await;
        if now >= start + 400 * MS {
            return false;
        }
        if !taken.grants.is_empty() {
            entry.fail(format_args!("departures of {start} are forgotten at {now}"));
        }
    }
    entry.sleep_until(first.reset).await;
    let (now, taken) = entry.call(&operation).await;
    if granted(&taken) != count {
        let reset = first.reset;
        entry.fail(format_args!(
            "departures of {start} count at {now}, after {reset}"
        ));
    }
    true
}

pub(super) async fn a_pause_outlives_the_departures(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("5/50ms"));
    entry.depart(1).await;
    let pause = Command::Pause {
        span: 600 * MS,
        evidence: u64::MAX,
    };
    let end = entry.control(pause).await.1.paused_until;
    let operation = Operation::Take(take(Mode::Try, 1, 1));
    loop {
        let (now, taken) = entry.call(&operation).await;
        if now >= end {
            break;
        }
        if !taken.grants.is_empty() {
            entry.fail(format_args!(
                "a request departs at {now}, paused until {end}"
            ));
        }
        sleep(Duration::from_millis(100)).await;
    }
    entry.departs(1, 1, "after a pause").await;
}

pub(super) async fn a_state_that_is_too_old_is_in_quarantine(bench: &Arc<Bench>) {
    let entry = bench.entry(policy("5/2s"));
    let strict = |known| {
        Operation::Take(Take {
            strict: Some(Strict {
                known,
                clock_was_set: false,
            }),
            ..take(Mode::Try, 1, 1)
        })
    };
    // A server that started a moment ago may have lost departures.
    let mut rounds = 0;
    let known = loop {
        let (_, taken) = entry.call(&strict(None)).await;
        if let (1, Some(known)) = (granted(&taken), taken.known) {
            break known;
        }
        rounds += 1;
        if rounds == 5 {
            entry.fail(format_args!("nothing departs: {taken:?}"));
        }
        entry.sleep_until(taken.quarantined_until + 1).await;
    };
    let (now, taken) = entry.call(&strict(Some(known))).await;
    let seen = taken.known.map(|it| (it.generation, it.version));
    if granted(&taken) != 1 || seen <= Some((known.generation, known.version)) {
        entry.fail(format_args!(
            "after {known:?}, the answer at {now} is {taken:?}"
        ));
    }
    let later = Known {
        version: known.version + 10,
        ..known
    };
    let (now, taken) = entry.call(&strict(Some(later))).await;
    if !taken.grants.is_empty() || taken.quarantined_until < now + 2 * SECOND {
        entry.fail(format_args!(
            "a state older than {later:?} is answered at {now} with {taken:?}"
        ));
    }
}

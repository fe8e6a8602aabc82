//! Requests in progress.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, Entry, SECOND, granted, policy, take};
use tower_throttle::store::contents::{Holding, Mode, Operation, Take};

/// A process that holds so many places asks for more. Returns how many it gets, and when it called.
async fn ask(entry: &Entry, process: u64, units: u32, count: usize) -> (u32, u64) {
    let holding = Holding {
        units,
        ..Holding::default()
    };
    let take = Take {
        process,
        holding,
        ..take(Mode::Try, count, 1)
    };
    let (now, taken) = entry.call(&Operation::Take(take)).await;
    (granted(&taken), now)
}

pub(super) async fn a_returned_place_nudges_the_next_process(bench: &Arc<Bench>) {
    let (waiting, other) = (1 << 20, 1 << 21);
    let keys = bench.nudged_keys(waiting);
    // A subscription may take a while to begin.
    for _ in 0..100 {
        let entry = bench.entry(policy("1 concurrent lease=60s"));
        for (process, number, mode, count, releases) in [
            (other, 1, Mode::Try, 1, false),
            (waiting, 1, Mode::Wait, 1, false),
            (other, 2, Mode::Try, 0, true),
        ] {
            let holding = Holding {
                units: 0,
                releases,
                is_notified: true,
            };
            let take = Take {
                process,
                number,
                holding,
                ..take(mode, count, 1)
            };
            entry.call(&Operation::Take(take)).await;
        }
        for _ in 0..10 {
            if !bench.hooks.nudges() || keys.lock().contains(&entry.key) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    bench.fail("the process that waits is not nudged within 10 s");
}

pub(super) async fn places_are_held_until_they_are_released_or_their_lease_ends(
    bench: &Arc<Bench>,
) {
    let entry = bench.entry(policy("3 concurrent lease=2s"));
    let (mut first, mut called) = (u64::MAX, 0);
    for (process, holds, asks, expected, which) in [
        (1, 0, 2, 2, "are free"),
        (2, 0, 2, 1, "is the last one"),
        (1, 1, 0, 0, "was not asked for"),
        (3, 0, 2, 1, "was released"),
    ] {
        let (count, now) = ask(&entry, process, holds, asks).await;
        if count != expected {
            entry.fail(format_args!("{count} requests get what {which}"));
        }
        (first, called) = (first.min(now), now);
    }
    // The third process renews its lease in time.
    entry.sleep_until(called + SECOND).await;
    let (count, renewed) = ask(&entry, 3, 1, 3).await;
    // On a busy machine, the call may be late.
    if count != 0 && renewed < first + 2 * SECOND {
        entry.fail(format_args!("{count} requests get places that are held"));
    }
    entry.sleep_until(called + 2 * SECOND).await;
    if count == 0 && entry.now().await < renewed + 2 * SECOND {
        let (count, now) = ask(&entry, 1, 0, 3).await;
        if count != 2 && now < renewed + 2 * SECOND {
            entry.fail(format_args!(
                "{count} requests get the two places whose leases have ended"
            ));
        }
    }
}

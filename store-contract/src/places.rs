//! Requests in progress.

use std::sync::Arc;

use super::bench::{Bench, SECOND, granted, policy, take};
use super::require;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::contents::{Holding, Mode, Operation, Take};

/// A process that holds so many places asks for more. Returns how many it gets, and when it called.
async fn ask(
    (bench, key, policy): (&Bench, &Key, &Policy),
    process: u64,
    units: u32,
    count: usize,
) -> (u32, u64) {
    let holding = Holding {
        units,
        ..Holding::default()
    };
    let take = Take {
        process,
        holding,
        ..take(Mode::Try, count, 1)
    };
    let (now, taken) = bench.call(key, policy, &Operation::Take(take)).await;
    (granted(&taken), now)
}

pub(super) async fn places_are_held_until_they_are_released_or_their_lease_ends(
    bench: &Arc<Bench>,
) {
    let (key, policy) = (bench.key(), policy("3 concurrent lease=2s"));
    let on = (&**bench, &key, &policy);
    let (count, _) = ask(on, 1, 0, 2).await;
    require!(bench, count == 2, "{count} of 2 requests get a place");
    let (count, _) = ask(on, 2, 0, 2).await;
    require!(
        bench,
        count == 1,
        "{count} of 2 requests get the last place"
    );
    let (count, _) = ask(on, 1, 1, 0).await;
    require!(
        bench,
        count == 0,
        "{count} requests depart that did not ask"
    );
    let (count, called) = ask(on, 3, 0, 2).await;
    require!(
        bench,
        count == 1,
        "{count} of 2 requests get the one that was released"
    );
    // The third process renews its lease in time.
    bench.sleep_until(&key, called + SECOND).await;
    let (count, renewed) = ask(on, 3, 1, 3).await;
    require!(
        bench,
        count == 0,
        "{count} requests get places that are held"
    );
    bench.sleep_until(&key, called + 2 * SECOND).await;
    if bench.ping(&key).await.now < renewed + 2 * SECOND {
        let (count, now) = ask(on, 1, 0, 3).await;
        let is_held = now < renewed + 2 * SECOND;
        require!(
            bench,
            count == 2 || !is_held,
            "{count} requests get the two places whose leases have ended"
        );
    }
}

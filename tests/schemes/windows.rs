//! Logs, buckets and windows: as many as they say, and no state that stays or grows.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, RedisStore, Slot};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, WindowStart};

use crate::support::child;
use crate::support::keyspace::{assert_all_expire, names, wait_until_empty};
use crate::support::redis_server::RedisServer;
use crate::support::slots::slots;
use crate::{LONG, MS, PATIENCE, ask, granted, policy, quota, reserve, store, waits};

/// Elsewhere the first request sets the counter and then its expiry; who dies in between leaves a
/// key that never goes, and who reads in between lets too many through.
#[tokio::test]
async fn a_window_from_the_first_request_holds_its_limit_and_always_expires() {
    let server = RedisServer::start();
    let (limit, window) = (5, MS(100));
    let start = WindowStart::FirstRequest;
    let policy = policy(quota(limit, window, Algorithm::FixedWindow { start }));
    let key = Key::from("a");
    let (one, other) = (store(&server).await, store(&server).await);
    let calls =
        (0..40).map(|call| slots([&one, &other][call % 2], &key, &policy, 1 + call as u32 % 3));
    let mut slots = join_all(calls).await.concat();
    slots.sort_by_key(|slot| slot.at);
    assert_eq!(slots.len(), 79);
    let (mut end, mut count) = (0, 0);
    for slot in &slots {
        if slot.at >= end {
            (end, count) = (slot.at + window.as_micros() as u64, 0);
        }
        count += 1;
        assert!(count <= limit && slot.record < end, "{slot:?} of {slots:?}");
    }

    wait_until_empty(&server).await;
    for _ in 0..3 {
        let spender = child::spawn("windows::spends_without_end", &server.url(), &[]);
        for _ in 0..3 {
            spender.next_line(PATIENCE);
        }
        spender.kill9();
        assert_all_expire(&server);
    }
    assert!(names(&server).len() >= 300);
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn spends_without_end() {
    let Some(url) = child::role() else { return };
    let start = WindowStart::FirstRequest;
    let builder = quota(1, LONG, Algorithm::FixedWindow { start });
    let store = RedisStore::connect(&url).await.expect("a connection");
    let limiter = builder.store(store).build().expect("a valid policy");
    for round in 0.. {
        let all = (0..100).map(|key| limiter.try_acquire(format!("{round}-{key}")));
        join_all(all).await;
        child::say(round);
    }
}

/// Elsewhere each user has a key per minute, or three that take turns.
#[tokio::test]
async fn windows_of_the_clock_take_one_key_per_user() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (limit, window) = (3, MS(100));
    let start = WindowStart::Clock;
    let policy = policy(quota(limit, window, Algorithm::FixedWindow { start }));
    let users = ["alice", "bob", "carol"];
    let mut handed_out = vec![Vec::new(); users.len()];
    for _ in 0..8 {
        for (user, all) in users.iter().zip(&mut handed_out) {
            all.extend(slots(&store, &Key::from(*user), &policy, 4).await);
        }
        let names = names(&server);
        for user in users {
            let of_user = names
                .iter()
                .filter(|name| name.contains(&format!("{{{user}}}")));
            assert!(of_user.count() <= 1, "{names:?}");
        }
        assert_all_expire(&server);
        sleep(window / 3).await;
    }
    for slots in handed_out {
        assert_eq!(slots.len(), 32);
        for history in histories(&slots) {
            assert!(history.most_in_aligned(window) <= limit.into(), "{slots:?}");
        }
    }
    wait_until_empty(&server).await;
}

/// Elsewhere an entry is named by its time, so that those of one microsecond are one; or the refused
/// are entered too, and keep the next ones out.
#[tokio::test]
async fn a_log_counts_all_of_one_microsecond_and_never_a_refused_one() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (limit, key) = (100, Key::from("a"));
    let policy = policy(quota(limit, LONG, Algorithm::SlidingLog));
    // One answer has one time.
    let answer = reserve(&store, &key, &policy, &[ask(limit + 50, 0)]).await;
    let slots = granted(&answer);
    assert_eq!(slots.len(), limit as usize);
    assert!(slots.iter().all(|slot| slot.at == answer.now()));
    let promised = answer.now() + waits(&answer)[0];

    let state = || {
        let names = names(&server);
        let name = names.first().expect("one");
        (
            names.len(),
            server.command::<Vec<u8>>(&["GETRANGE", name, "0", "-1"]),
        )
    };
    let before = state();
    let refused = (0..200).map(|_| reserve(&store, &key, &policy, std::slice::from_ref(&AT_ONCE)));
    for answer in join_all(refused).await {
        assert_eq!((answer.remaining(), granted(&answer).len()), (0, 0));
        assert_eq!(answer.now() + waits(&answer)[0], promised);
    }
    assert_eq!(state(), before);
}

const AT_ONCE: Ask = Ask {
    count: 1,
    cost: 1,
    max_wait: 0,
};

/// Elsewhere a field per tick, all of which are read, and the oldest counts in part.
#[tokio::test]
async fn buckets_hold_any_limit_in_a_bounded_number_of_counts() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (limit, window, buckets) = (5_000, MS(400), 10);
    let policy = policy(quota(limit, window, Algorithm::SlidingBuckets { buckets }));
    let key = Key::from("a");
    let mut all = Vec::new();
    for _ in 0..60 {
        let answer = reserve(&store, &key, &policy, &[ask(300, 100_000)]).await;
        all.extend(granted(&answer));
        for name in names(&server) {
            // Those of the last window and of what is to come, and each a few bytes.
            let bound = 2 * u64::from(buckets) * 8;
            let length = server.command::<u64>(&["STRLEN", &name]);
            assert!(length <= bound, "{length} bytes, where {bound} would do");
        }
        sleep(window / 50).await;
    }
    assert!(all.len() > limit as usize, "{}", all.len());
    for history in histories(&all) {
        history.assert_at_most(limit.into(), window);
    }
}

/// Departures at the slots; at the ends of their guards; and at the one or the other, by turns.
fn histories(slots: &[Slot]) -> [History; 3] {
    let history = |at: fn(usize, &Slot) -> u64| {
        let times = slots.iter().enumerate();
        times
            .map(|(place, slot)| Duration::from_micros(at(place, slot)))
            .collect()
    };
    [
        history(|_, slot| slot.at),
        history(|_, slot| slot.record),
        history(|place, slot| [slot.at, slot.record][place % 2]),
    ]
}

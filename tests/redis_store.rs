//! What a Redis store sends to real servers, and what it leaves in them.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::cmd;
use support::command_stats::CommandStats;
use support::keyspace::{assert_all_expire, names, start_cluster, wait_until_empty};
use support::monitor::Monitor;
use support::redis_server::RedisServer;
use support::slots::slots;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, RedisStore, Release, Reserve, Reserved, Slot, Store};
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Policy, Quota};

/// What a machine may need that does many other things; nothing here waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    store.timeout(PATIENCE)
}

fn limiter(store: &RedisStore, builder: LimiterBuilder) -> Limiter {
    // However late a busy machine wakes, no permit expires and none is reserved twice.
    let builder = builder.guard(PATIENCE).store(store.clone());
    builder.build().expect("a valid policy")
}

fn quota(quota: Quota) -> LimiterBuilder {
    Limiter::builder().quota(quota)
}

fn policy(builder: LimiterBuilder) -> Arc<Policy> {
    let builder = builder.guard(Duration::from_millis(1));
    builder.build().expect("a valid policy").policy()
}

fn joint() -> LimiterBuilder {
    let spacing = Quota::new(100, LONG).algorithm(Algorithm::Spacing);
    let gcra = Quota::new(100, LONG).algorithm(Algorithm::Gcra { burst: 50 });
    quota(Quota::new(3, LONG)).quota(spacing).quota(gcra)
}

fn asks(count: u32, max_wait: u64) -> [Ask; 1] {
    [Ask {
        count,
        cost: 1,
        max_wait,
    }]
}

async fn reserve(store: &RedisStore, key: &Key, policy: &Policy, asks: &[Ask]) -> Reserved {
    let mut reserve = Reserve::new(key, policy);
    reserve.asks = asks;
    store.reserve(&reserve).await.expect("an answer")
}

async fn release(store: &RedisStore, key: &Key, policy: &Policy, slots: &[Slot]) {
    store
        .release(&Release::new(key, policy, slots))
        .await
        .expect("an answer");
}

#[tokio::test]
async fn sends_nothing_but_evalsha_once_the_scripts_are_known() {
    let server = RedisServer::start();
    let limiter = limiter(&store(&server).await, joint());
    let monitor = Monitor::start(&server);
    limiter.acquire("a").await.expect("a permit").forfeit();
    settle(&limiter).await;
    let first = monitor.finish(&server);
    assert_eq!(first.calls("script"), 3, "one for each script: {first:?}");
    // All at once, so that no other call finds its script unknown and arrives later than those behind it.
    assert_eq!(first.calls("evalsha"), 3, "one came back: {first:?}");
    assert_eq!(first.calls("eval"), 0);

    let monitor = Monitor::start(&server);
    limiter.acquire("a").await.expect("a permit").forfeit();
    limiter.acquire("b").await.expect("a permit");
    settle(&limiter).await;
    let seen = monitor.finish(&server);
    let by_clients = seen.commands.iter().filter(|sent| sent.sender != "lua");
    let by_clients: Vec<_> = by_clients.map(|sent| &sent.name[..]).collect();
    assert_eq!(
        by_clients, ["evalsha"; 3],
        "one to reserve for each, one to release"
    );
    let by_scripts = seen.commands.iter().filter(|sent| sent.sender == "lua");
    for sent in by_scripts {
        let documented = [
            "time", "get", "mget", "exists", "psetex", "del", "strlen", "getrange", "setrange",
            "pexpire",
        ];
        assert!(
            documented.contains(&&sent.name[..]),
            "a script runs {}",
            sent.text
        );
    }
}

/// Waits until no line is left, so that all has been sent.
async fn settle(limiter: &Limiter) {
    let deadline = Instant::now() + PATIENCE;
    while limiter.lines() > 0 {
        assert!(Instant::now() < deadline, "a line is left");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_flush_of_the_scripts_goes_unnoticed() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (key, policy) = (Key::from("a"), policy(quota(Quota::new(3, LONG))));
    let held = slots(&store, &key, &policy, 4).await;
    for round in 0..5_usize {
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        // All at once, so that all find the script gone.
        let last = &held[3..];
        let release = async {
            if round % 2 == 0 {
                release(&store, &key, &policy, last).await;
            }
        };
        let others = (0..8).map(|other| {
            let key = Key::from(format!("{round}-{other}"));
            let (store, policy) = (&store, &policy);
            async move { slots(store, &key, policy, 2).await }
        });
        futures_util::join!(join_all(others), release);
    }
    let left = reserve(&store, &key, &policy, &asks(1, 0)).await;
    assert_eq!(left.outcomes().len(), 1);
    assert!(
        matches!(left.outcomes()[0], Outcome::Refused { .. }),
        "the state is still there"
    );
}

#[tokio::test]
async fn a_restarted_server_learns_the_scripts_again() {
    let mut server = RedisServer::start();
    let store = store(&server).await;
    let (key, policy) = (Key::from("a"), policy(quota(Quota::new(1, LONG))));
    slots(&store, &key, &policy, 2).await;
    server.restart();
    // The connection is gone, and with it perhaps a call; but never for want of the script.
    let deadline = Instant::now() + PATIENCE;
    let answer = loop {
        match store.reserve(&Reserve::new(&key, &policy)).await {
            Ok(answer) => break answer,
            Err(error) => assert!(!format!("{error:?}").contains("NOSCRIPT"), "{error:?}"),
        }
        assert!(Instant::now() < deadline, "the connection is not restored");
        sleep(Duration::from_millis(10)).await;
    };
    // The first may have been lost on its way; its state is new in any case.
    assert!(answer.reset() < LONG * 3, "{answer:?}");
}

#[tokio::test]
async fn every_key_expires_at_all_times() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let spacing = Quota::new(5, LONG).algorithm(Algorithm::Spacing);
    let gcra = Quota::new(5, LONG).algorithm(Algorithm::Gcra { burst: 3 });
    for builder in [
        quota(Quota::new(3, LONG)),
        quota(spacing),
        quota(gcra),
        joint(),
    ] {
        let policy = policy(builder);
        let key = Key::from("a");
        reserve(&store, &key, &policy, &asks(1, 0)).await;
        assert_all_expire(&server);
        // A refusal.
        reserve(&store, &key, &policy, &asks(5, 0)).await;
        assert_all_expire(&server);
        let mut held = slots(&store, &key, &policy, 12).await;
        assert_all_expire(&server);
        // From the middle.
        release(&store, &key, &policy, &[held.remove(5)]).await;
        assert_all_expire(&server);
        release(&store, &key, &policy, &[held.remove(2), held.remove(7)]).await;
        assert_all_expire(&server);
        // One of those.
        held.extend(slots(&store, &key, &policy, 1).await);
        assert_all_expire(&server);
        // A log that grows.
        slots(&store, &key, &policy, 200).await;
        assert_all_expire(&server);
        let last = held.pop().expect("many");
        release(&store, &key, &policy, &[last.clone(), last]).await;
        assert_all_expire(&server);
        release(&store, &key, &policy, &held).await;
        assert_all_expire(&server);
        // What was never handed out.
        release(&store, &Key::from("never seen"), &policy, &held[3..]).await;
        assert_all_expire(&server);
    }
    assert!(!names(&server).is_empty());
}

#[tokio::test]
async fn keys_disappear_once_they_are_of_no_use() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let short = Duration::from_millis(150);
    let spacing = Quota::new(3, short).algorithm(Algorithm::Spacing);
    let gcra = Quota::new(3, short).algorithm(Algorithm::Gcra { burst: 3 });
    let policy = policy(quota(Quota::new(2, short)).quota(spacing).quota(gcra));
    for key in 0..50 {
        let key = Key::from(format!("key-{key}"));
        let held = slots(&store, &key, &policy, 6).await;
        release(&store, &key, &policy, &held[3..4]).await;
    }
    assert!(server.command::<u64>(&["DBSIZE"]) > 0);
    wait_until_empty(&server).await;
}

#[tokio::test]
async fn a_key_disappears_at_once_when_all_its_slots_are_given_back() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (key, policy) = (Key::from("a"), policy(quota(Quota::new(2, LONG))));
    let held = slots(&store, &key, &policy, 7).await;
    release(&store, &key, &policy, &held[2..4]).await;
    release(&store, &key, &policy, &held[4..]).await;
    release(&store, &key, &policy, &held[..2]).await;
    assert_eq!(names(&server), BTreeSet::new());
}

#[tokio::test]
async fn a_refusal_leaves_no_key() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (key, policy) = (Key::from("a"), policy(joint()));
    let now = reserve(&store, &Key::from("b"), &policy, &asks(1, 0))
        .await
        .now();
    let before = names(&server);
    let mut later = Reserve::new(&key, &policy);
    let asks = asks(3, 0);
    (later.not_before, later.asks) = (now + 500_000_000, &asks);
    let answer = store.reserve(&later).await.expect("an answer");
    assert!(
        answer
            .outcomes()
            .iter()
            .all(|it| matches!(it, Outcome::Refused { .. }))
    );
    assert_eq!(names(&server), before);
}

#[tokio::test]
async fn all_names_start_with_the_prefix_and_keep_stores_apart() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let policy = policy(joint());
    let key = Key::from("a");
    let mut seen = BTreeSet::new();
    for prefix in ["throttle", "team:api", "*", "a\\b\"'", "throttle:x"] {
        let store = match prefix {
            "throttle" => store.clone(),
            _ => store.clone().prefix(prefix).expect("a valid prefix"),
        };
        let held = slots(&store, &key, &policy, 4).await;
        let answer = reserve(&store, &key, &policy, &asks(1, u64::MAX)).await;
        assert!(answer.reset() < LONG * 4, "{prefix} starts clean");
        release(&store, &key, &policy, &held[2..3]).await;
        let names = names(&server);
        for name in names.difference(&seen) {
            assert!(name.starts_with(&format!("{prefix}:{{a}}:")), "{name}");
        }
        // Three quotas and the free slots.
        assert_eq!(names.difference(&seen).count(), 4);
        seen = names;
    }
    for bad in ["", "{", "a}b", "a b", "é", "a\n", &"x".repeat(129)] {
        assert!(store.clone().prefix(bad).is_err(), "{bad:?}");
    }
}

/// Texts that would break out of a hash tag, a name or a command if they could.
fn strange_keys() -> Vec<String> {
    let long = "x".repeat(100 * 1024);
    let mut keys: Vec<_> = [
        "a",
        "A",
        " ",
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "}a",
        "a}b{c",
        "a}:1/s",
        "\0",
        "a\0b",
        "\n",
        "a\r\nb",
        "\r\n$3\r\nfoo",
        "é",
        "e\u{301}",
        "🦀",
        "\u{202e}",
        "%",
        "%7B",
        "%7b",
        "*",
        "?",
        "[a]",
        "\\",
        "\"",
        "'",
        ":",
        "a:aside",
        "a:0",
        "..",
        "/",
        "$(x)",
    ]
    .map(str::to_owned)
    .into();
    keys.extend([format!("{long}}}"), format!("{long}{{"), long]);
    keys.extend([64, 65].map(|length| "y".repeat(length)));
    keys
}

#[tokio::test]
async fn all_names_of_a_key_share_a_hash_slot_that_no_text_can_change() {
    let server = start_cluster().await;
    let connection = server.client().get_multiplexed_async_connection().await;
    let store = RedisStore::from(connection.expect("a connection")).timeout(PATIENCE);
    let policy = policy(joint());
    let mut seen = BTreeSet::new();
    let mut hash_slots = BTreeSet::new();
    for text in strange_keys() {
        let key = Key::from(&text);
        let held = slots(&store, &key, &policy, 6).await;
        release(&store, &key, &policy, &held[3..4]).await;
        let names = names(&server);
        let new: Vec<_> = names.difference(&seen).collect();
        assert_eq!(new.len(), 4, "{text:.40?} has names of its own: {new:?}");
        let tag = |name: &str| {
            let (_, rest) = name.split_once('{').expect("a tag");
            let (tag, rest) = rest.split_once('}').expect("its end");
            assert!(!rest.contains(['{', '}']) && !tag.contains('{'), "{name}");
            assert!(
                name.len() < 250 && name.bytes().all(|byte| byte.is_ascii_graphic()),
                "{name}"
            );
            tag.to_owned()
        };
        let tags: BTreeSet<_> = new.iter().map(|name| tag(name)).collect();
        assert_eq!(tags.len(), 1, "{text:.40?}: {new:?}");
        let tag = tags.first().expect("one");
        let by_tag: u16 = server.command(&["CLUSTER", "KEYSLOT", tag]);
        for name in new {
            assert_eq!(
                server.command::<u16>(&["CLUSTER", "KEYSLOT", name]),
                by_tag,
                "{name}"
            );
        }
        hash_slots.insert(by_tag);
        seen = names;
    }
    assert!(
        hash_slots.len() > 20,
        "keys are spread over a cluster: {hash_slots:?}"
    );
}

#[tokio::test]
async fn long_keys_are_hashed_and_short_ones_readable() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let policy = policy(quota(Quota::per_hour(5)));
    let long = "x".repeat(100 * 1024);
    for key in ["api.example.com:8443", &long] {
        slots(&store, &Key::from(key), &policy, 1).await;
    }
    // `printf 'x%.0s' {1..102400} | sha256sum`
    let digest = "8B77EC70310A4F694FFF9AD0BF5F1E9DA39B97EC5CCB3CED6A6261AC4EFFEE4C";
    let expected = [
        format!("%sha256:{digest}"),
        "api.example.com:8443".to_owned(),
    ];
    let expected = expected.map(|tag| format!("throttle:{{{tag}}}:{}", policy.id()));
    assert_eq!(names(&server), BTreeSet::from(expected));
}

#[tokio::test]
async fn a_changed_quota_starts_clean_and_leaves_the_old_one_alone() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let key = Key::from("a");
    let old = policy(quota(Quota::new(2, LONG)));
    let held = slots(&store, &key, &old, 4).await;
    let bursty = Algorithm::Gcra { burst: 2 };
    for new in [
        quota(Quota::new(3, LONG)),
        quota(Quota::new(2, LONG * 2)),
        quota(Quota::new(2, LONG).algorithm(Algorithm::Spacing)),
        quota(Quota::new(2, LONG).algorithm(bursty)),
        quota(Quota::new(2, LONG).algorithm(Algorithm::Gcra { burst: 1 })),
        quota(Quota::new(2, LONG)).quota(Quota::new(3, LONG)),
        quota(Quota::new(2, LONG)).name("other"),
    ] {
        let new = policy(new);
        let first = reserve(&store, &key, &new, &asks(1, 0)).await;
        assert!(
            matches!(first.outcomes()[0], Outcome::Granted(_)),
            "{}",
            new.id()
        );
        slots(&store, &key, &new, 20).await;
    }
    // As though the others had never been: the free slot, then the one behind the last.
    release(&store, &key, &old, &held[2..3]).await;
    let again = slots(&store, &key, &old, 2).await;
    assert_eq!(again[0], held[2]);
    assert!(again[1].at > held[3].at && again[1].at < held[3].at + LONG.as_micros() as u64 * 3 / 2);
}

#[tokio::test]
async fn joint_quotas_cost_one_call() {
    let server = RedisServer::start();
    let policy = joint();
    let limiter = limiter(&store(&server).await, policy);
    limiter.try_acquire("warm-up").await.expect("a decision");
    let before = CommandStats::of(&server);
    let count = 20;
    for key in 0..count {
        limiter
            .try_acquire(format!("key-{key}"))
            .await
            .expect("a decision")
            .permit()
            .expect("granted");
    }
    let after = CommandStats::of(&server).since(&before);
    assert_eq!(after.client_calls(), count);
    assert_eq!(after.script_calls(), count);
}

#[tokio::test]
async fn a_thousand_requests_at_once_share_few_calls() {
    let server = RedisServer::start();
    let limiter = limiter(&store(&server).await, quota(Quota::new(5_000, LONG)));
    limiter.acquire("a").await.expect("a permit");
    let before = CommandStats::of(&server);
    let permits = join_all((0..1_000).map(|_| limiter.acquire("a"))).await;
    assert!(permits.iter().all(Result::is_ok));
    let calls = CommandStats::of(&server).since(&before).client_calls();
    assert!(calls <= 20, "{calls} calls for 1,000 requests");
}

#[tokio::test]
async fn a_waiting_request_costs_one_call_and_nothing_while_it_waits() {
    let server = RedisServer::start();
    let guard = Duration::from_secs(2);
    let builder = quota(Quota::new(1, Duration::from_millis(100)));
    let store = store(&server).await;
    let limiter = builder
        .guard(guard)
        .store(store)
        .build()
        .expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");

    let before = CommandStats::of(&server);
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("a").await }
    });
    let deadline = Instant::now() + PATIENCE;
    let mut reserved = CommandStats::of(&server);
    while reserved.since(&before).script_calls() == 0 {
        assert!(Instant::now() < deadline, "nothing is sent");
        sleep(Duration::from_millis(1)).await;
        reserved = CommandStats::of(&server);
    }
    let permit = waiter.await.expect("no panic").expect("a permit");
    assert!(
        permit.waited() >= guard,
        "it waited only {:?}",
        permit.waited()
    );
    let sent = CommandStats::of(&server).since(&before);
    // But for those that ask whether pauses would be heard of.
    assert_eq!(sent.client_calls() - sent.calls("ping"), 1, "{sent:?}");
}

#[tokio::test]
async fn a_line_of_waiters_costs_fewer_calls_than_there_are_waiters() {
    let server = RedisServer::start();
    let store = store(&server).await;
    // Late wake-ups cost calls of their own, so the guard leaves room for a busy machine.
    let builder =
        quota(Quota::new(20, Duration::from_millis(50))).guard(Duration::from_millis(400));
    let limiter = builder.store(store).build().expect("a valid policy");
    let before = CommandStats::of(&server);
    let permits = join_all((0..100).map(|_| limiter.acquire("a"))).await;
    assert!(permits.iter().all(Result::is_ok));
    let calls = CommandStats::of(&server).since(&before).script_calls();
    assert!(calls <= 50, "{calls} calls for 100 waiters");
}

/// Under a steady load a log is rewritten before it grows beyond what it has to hold.
#[tokio::test]
async fn a_log_does_not_grow_over_many_windows() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let limit = 40;
    let policy = policy(quota(Quota::new(limit, Duration::from_millis(20))));
    let key = Key::from("a");
    let mut most = 0;
    let mut connection = server
        .client()
        .get_multiplexed_async_connection()
        .await
        .expect("one");
    for _ in 0..400 {
        // Half of a window, up to three windows ahead.
        let answer = reserve(&store, &key, &policy, &asks(limit / 2, 60_000)).await;
        let granted = answer
            .outcomes()
            .iter()
            .any(|it| matches!(it, Outcome::Granted(_)));
        if !granted {
            sleep(Duration::from_millis(5)).await;
        }
        for name in names(&server) {
            let length: u64 = cmd("STRLEN")
                .arg(name)
                .query_async(&mut connection)
                .await
                .expect("one");
            most = most.max(length);
        }
        assert_all_expire(&server);
    }
    // Records of the last window and of the three to come and an eighth more, 8 bytes each.
    let bound = u64::from(limit) * 5 * 8 * 9 / 8 + 8;
    assert!(
        (1..=bound).contains(&most),
        "{most} bytes, where {bound} would do"
    );
}

/// Nor does the list of free slots, when as many are taken as come back.
#[tokio::test]
async fn free_slots_do_not_pile_up() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (key, policy) = (Key::from("a"), policy(quota(Quota::new(5, LONG))));
    let mut held = slots(&store, &key, &policy, 100).await;
    let size = || {
        let names = names(&server);
        let sizes = names
            .iter()
            .map(|name| server.command::<u64>(&["MEMORY", "USAGE", name]));
        sizes.sum::<u64>()
    };
    release(&store, &key, &policy, &held.split_off(50)[..40]).await;
    let before = size();
    for round in 0..50 {
        let taken = slots(&store, &key, &policy, 20).await;
        let taken: Vec<_> = taken.into_iter().rev().collect();
        release(&store, &key, &policy, &taken).await;
        let now = size();
        assert!(
            now <= before * 5 / 4,
            "round {round}: {now} bytes, from {before}"
        );
    }
}

//! How long Redis keeps what it is given: as long as it has influence, and no longer.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::errors::PATIENCE;
use support::keyspace::{names, wait_until_empty};
use support::redis_server::RedisServer;
use support::slots::slots;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Ask, Outcome, RedisStore, Release, Reserve, Reserved, Slot, Store, Word,
};
use tower_throttle::{Limiter, Policy, Quota};

/// What Redis rounds to, and what the store adds so that nothing goes too early.
const ROUNDING: Duration = Duration::from_millis(2);

/// Windows so long that what is done in one test falls into few of them.
const LONG: [&[&str]; 8] = [
    &["5/10m"],
    &["5/10m sliding-buckets buckets=20"],
    &["5/10m gcra burst=5"],
    &["5/10m fixed-window"],
    &["5/10m fixed-window start=first-request"],
    &["5/10m spacing"],
    &["5/10m leaky-bucket capacity=50"],
    &[
        "5/10m",
        "9/20m sliding-buckets buckets=20",
        "5/10m gcra burst=5",
        "50/d fixed-window",
        "40/h fixed-window start=first-request",
        "1/m spacing",
        "5/10m leaky-bucket capacity=50",
    ],
];

const SHORT: [&[&str]; 8] = [
    &["5/s"],
    &["5/s sliding-buckets buckets=20"],
    &["5/s gcra burst=5"],
    &["5/s fixed-window"],
    &["5/s fixed-window start=first-request"],
    &["5/s spacing"],
    &["5/s leaky-bucket capacity=50"],
    &[
        "5/s",
        "9/2s sliding-buckets buckets=20",
        "6/s gcra burst=5",
        "7/s fixed-window",
        "8/s fixed-window start=first-request",
        "9/s spacing",
        "10/s leaky-bucket capacity=50",
    ],
];

async fn store(server: &RedisServer, scripts: bool) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    store.scripting(scripts).expect("a store that connected")
}

fn policy(quotas: &[&str]) -> Arc<Policy> {
    let quotas = quotas.iter().map(|text| text.parse::<Quota>());
    let quotas = quotas.map(|quota| quota.expect("a quota"));
    let builder = quotas.fold(Limiter::builder(), |builder, quota| builder.quota(quota));
    builder.build().expect("a valid policy").policy()
}

/// One key under one policy, and since when.
struct Life<'a> {
    server: &'a RedisServer,
    store: &'a RedisStore,
    key: Key,
    policy: &'a Policy,
    start: Instant,
}

impl Life<'_> {
    async fn reserve(&self, count: u32) -> Reserved {
        let asks = [Ask {
            count,
            cost: 1,
            max_wait: u64::MAX,
        }];
        let mut reserve = Reserve::new(&self.key, self.policy);
        reserve.asks = &asks;
        self.store.reserve(&reserve).await.expect("an answer")
    }

    async fn peek(&self) -> Reserved {
        let reserve = Reserve::new(&self.key, self.policy);
        self.store.peek(&reserve).await.expect("an answer")
    }

    async fn release(&self, slot: &Slot) {
        let slots = std::slice::from_ref(slot);
        let release = Release::new(&self.key, self.policy, slots);
        self.store.release(&release).await.expect("an answer");
    }

    /// The names of its keys and how long each has to live, read in one step.
    fn left(&self) -> Vec<(String, i64)> {
        const LEFT: &str = "local found = {}
            for _, key in ipairs(redis.call('KEYS', '*')) do
              found[#found + 1] = { key, redis.call('PTTL', key) }
            end
            return found";
        let all: Vec<(String, i64)> = self.server.command(&["EVAL", LEFT, "0"]);
        let id = self.policy.id();
        let own = format!("throttle:{{{}}}:{id}", self.key);
        let is_own = |name: &str| {
            let rest = name.strip_prefix(&own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        all.into_iter().filter(|(name, _)| is_own(name)).collect()
    }

    /// Of one quota, every key lives as long as `answer` says that it matters, and no longer; of
    /// several, the key of free slots and that of one quota do, and no other lives longer.
    fn assert_lives_as_long_as_it_matters(&self, answer: &Reserved, free: usize) {
        let all = self.left();
        // What has passed since, and before in the calls that set the expiry.
        let slack = self.start.elapsed() + ROUNDING;
        let reset = answer.reset();
        if reset <= slack {
            // A window of the clock is about to end.
            return;
        }
        let id = self.policy.id();
        let joint = self.policy.quotas().len();
        let (frees, states): (Vec<_>, Vec<_>) = all
            .into_iter()
            .map(|(name, left)| {
                let left = u64::try_from(left).unwrap_or_else(|_| panic!("{name}: no expiry"));
                (name, Duration::from_millis(left))
            })
            .partition(|(name, _)| name.ends_with(":aside"));
        assert_eq!((states.len(), frees.len()), (joint, free), "{id}");
        for (name, left) in states.iter().chain(&frees) {
            assert!(*left <= reset + slack, "{name}: {left:?} for {reset:?}");
        }
        let longest = states.iter().max_by_key(|(_, left)| *left);
        for (name, left) in longest.into_iter().chain(&frees) {
            assert!(*left + slack >= reset, "{name}: {left:?} for {reset:?}");
        }
    }
}

fn granted(answer: &Reserved) -> Vec<Slot> {
    let slot = |outcome: &Outcome| match outcome {
        Outcome::Granted(slot) => slot.clone(),
        Outcome::Refused { wait } => panic!("refused for a wait of {wait} us"),
    };
    answer.outcomes().iter().map(slot).collect()
}

async fn keys_live_as_long_as_they_matter(scripts: bool) {
    let server = RedisServer::start();
    let store = store(&server, scripts).await;
    for quotas in LONG {
        let policy = policy(quotas);
        for count in [1, 3, 30] {
            let life = Life {
                server: &server,
                store: &store,
                key: Key::from(format!("key-{count}")),
                policy: &policy,
                start: Instant::now(),
            };
            let answer = life.reserve(count).await;
            let slots = granted(&answer);
            life.assert_lives_as_long_as_it_matters(&answer, 0);
            // On top of what is there.
            let answer = life.reserve(1).await;
            granted(&answer);
            life.assert_lives_as_long_as_it_matters(&answer, 0);
            if count < 30 {
                continue;
            }
            life.release(&slots[15]).await;
            life.assert_lives_as_long_as_it_matters(&life.peek().await, 1);
            life.release(&slots[20]).await;
            life.assert_lives_as_long_as_it_matters(&life.peek().await, 1);
            // One free slot is taken, and then the last and one behind all.
            let answer = life.reserve(1).await;
            assert_eq!(granted(&answer), slots[15..16]);
            life.assert_lives_as_long_as_it_matters(&answer, 1);
            let answer = life.reserve(2).await;
            assert_eq!(granted(&answer)[0], slots[20]);
            life.assert_lives_as_long_as_it_matters(&answer, 0);
        }
    }
}

#[tokio::test]
async fn keys_live_as_long_as_they_matter_with_scripts() {
    keys_live_as_long_as_they_matter(true).await;
}

#[tokio::test]
async fn keys_live_as_long_as_they_matter_without_scripts() {
    keys_live_as_long_as_they_matter(false).await;
}

async fn keys_disappear_by_themselves(scripts: bool) {
    let server = RedisServer::start();
    let store = store(&server, scripts).await;
    let mut keys = 0;
    for quotas in SHORT {
        let policy = policy(quotas);
        for count in [1, 3, 15] {
            let key = Key::from(format!("key-{count}"));
            let held = slots(&store, &key, &policy, count).await;
            let middle = &held[held.len() * 2 / 3..][..1];
            let release = Release::new(&key, &policy, middle);
            if count > 1 {
                store.release(&release).await.expect("an answer");
            }
            keys += quotas.len();
        }
    }
    wait_until_empty(&server).await;
    // Free slots beside them, unless a busy machine was late.
    let expired = expired_keys(&server);
    assert!(expired >= keys, "{expired} of {keys} expired");
    assert!(names(&server).is_empty());
}

fn expired_keys(server: &RedisServer) -> usize {
    let info: String = server.command(&["INFO", "stats"]);
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("expired_keys:"));
    line.expect("a line").parse().expect("a number")
}

#[tokio::test]
async fn keys_disappear_by_themselves_with_scripts() {
    keys_disappear_by_themselves(true).await;
}

#[tokio::test]
async fn keys_disappear_by_themselves_without_scripts() {
    keys_disappear_by_themselves(false).await;
}

/// On a key that is fresh or in use, whatever lasts longer, the pause or the state.
async fn a_pause_lives_as_long_as_it_holds(scripts: bool) {
    const MINUTE: Duration = Duration::from_secs(60);
    let server = RedisServer::start();
    let store = store(&server, scripts).await;
    for quotas in LONG {
        let policy = policy(quotas);
        for (count, span) in [(0, MINUTE), (3, MINUTE), (3, MINUTE * 60 * 24 * 2)] {
            let life = Life {
                server: &server,
                store: &store,
                key: Key::from(format!("key-{count}-{span:?}")),
                policy: &policy,
                start: Instant::now(),
            };
            if count > 0 {
                life.reserve(count).await;
            }
            let word = Word::Pause {
                span: u64::try_from(span.as_micros()).expect("some days"),
                departed: u64::MAX,
            };
            store
                .heed(&life.key, &policy, word)
                .await
                .expect("an answer");
            let answer = life.peek().await;
            let left = life.left();
            let slack = life.start.elapsed() + ROUNDING;
            assert!(answer.reset() + slack >= span, "{quotas:?}");
            let aside = left.iter().filter(|(name, _)| name.ends_with(":aside"));
            assert_eq!(aside.count(), 1, "{left:?}");
            for (name, left) in &left {
                let left = u64::try_from(*left).unwrap_or_else(|_| panic!("{name}: no expiry"));
                let left = Duration::from_millis(left);
                let is_log = quotas == ["5/10m"];
                assert!(left <= answer.reset() + slack, "{name}: {left:?}");
                // What a log is marked with has to stay as long as what it points to.
                if name.ends_with(":aside") || is_log {
                    assert!(left + slack >= answer.reset(), "{name}: {left:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_pause_lives_as_long_as_it_holds_with_scripts() {
    a_pause_lives_as_long_as_it_holds(true).await;
}

#[tokio::test]
async fn a_pause_lives_as_long_as_it_holds_without_scripts() {
    a_pause_lives_as_long_as_it_holds(false).await;
}

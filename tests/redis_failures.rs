//! A Redis server that is not there, does not answer, refuses, or holds what nobody of ours wrote: an
//! error within the store's timeout, never a hang and never a silent pass.

mod support;

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::Future;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{FromRedisValue, cmd};
use support::redis_server::RedisServer;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::{
    Ask, Outcome, RedisStore, Release, Reserve, Reserved, Slot, Store, StoreError,
};
use tower_throttle::{
    Algorithm, Decision, Error, Limiter, LimiterBuilder, Policy, Quota, WindowStart,
};

/// Within which all must be over that is bounded at all, on a machine that does many other things.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the stores here wait for an answer that does not come.
const SHORT: Duration = Duration::from_millis(200);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future)
        .await
        .expect("an end to it, as it is bounded")
}

async fn connect(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url())
        .await
        .expect("a connection")
        .timeout(PATIENCE)
}

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn limiter(store: &RedisStore, limit: u32) -> Limiter {
    let builder = quota(limit).guard(Duration::from_secs(60));
    builder
        .store(store.clone())
        .build()
        .expect("a valid policy")
}

/// The store's error in one of the limiter's, which says nothing else.
fn store_error(error: &Error) -> &StoreError {
    assert!(error.is_store(), "{error:?}");
    let others = [
        error.is_limited(),
        error.is_line_full(),
        error.is_invalid_cost(),
        error.is_invalid_key(),
        error.is_missing_key(),
    ];
    assert_eq!(others, [false; 5], "{error:?}");
    assert_eq!(error.wait(), None);
    let source = error.source().expect("a source");
    source.downcast_ref().expect("the store's error")
}

/// All that an error and its sources say in any way.
fn everything(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        writeln!(text, "{error}\n{error:?}\n{error:#?}").expect("room");
        next = error.source();
    }
    text
}

/// Each message of the chain says something, and ours do not repeat what the one below says.
fn assert_readable(error: &(dyn StdError + 'static)) {
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        let message = error.to_string();
        assert!(!message.is_empty(), "{error:?}");
        if let Some(source) = next.filter(|_| error.is::<Error>() || error.is::<StoreError>()) {
            assert!(
                !message.contains(&source.to_string()),
                "{message}: {source}"
            );
        }
    }
}

/// Asks until the store answers again.
async fn recovers<T, F: Future<Output = Result<T, Error>>>(mut ask: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bounded(ask()).await {
            Ok(answer) => return answer,
            Err(error) => {
                store_error(&error);
                assert!(Instant::now() < deadline, "it does not recover: {error:?}");
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn granted(limiter: &Limiter, key: &str) -> bool {
    let decision = bounded(limiter.try_acquire(key)).await.expect("a decision");
    matches!(decision, Decision::Granted(_))
}

#[tokio::test]
async fn connecting_where_nobody_listens_fails_at_once() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill9();
    let error = bounded(RedisStore::connect(&url))
        .await
        .expect_err("nobody is there");
    assert_eq!(error.to_string(), "redis cannot be reached");
    assert!(
        error.source().is_some() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    assert_readable(&error);
}

#[tokio::test]
async fn connecting_to_somebody_who_never_answers_fails_after_a_second() {
    // The system accepts, and nobody ever reads.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", silent.local_addr().expect("an address"));
    let start = Instant::now();
    let error = bounded(RedisStore::connect(&url))
        .await
        .expect_err("nobody answers");
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "it gave up after {:?}",
        start.elapsed()
    );
    assert_eq!(error.to_string(), "redis cannot be reached");
    assert!(
        error.source().is_some() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    assert_readable(&error);
}

#[tokio::test]
async fn connecting_by_a_url_that_is_none_fails() {
    for url in [
        "",
        "nonsense",
        "http://127.0.0.1/",
        "redis://127.0.0.1:notaport/",
        "redis://",
    ] {
        let error = bounded(RedisStore::connect(url))
            .await
            .expect_err("no such server");
        assert!(!error.is_outcome_unknown(), "{url}: {error:?}");
        assert_readable(&error);
    }
}

#[tokio::test]
async fn a_server_that_is_killed_is_an_error_and_not_a_pass() {
    let mut server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 1_000);
    limiter.acquire("a").await.expect("a permit");
    server.kill9();
    for _ in 0..5 {
        let error = bounded(limiter.acquire("a"))
            .await
            .expect_err("nobody answers");
        store_error(&error);
        assert_readable(&error);
        store_error(
            &bounded(limiter.try_acquire("a"))
                .await
                .expect_err("nobody answers"),
        );
    }
    // By now all know that the connection is gone; what cannot be sent cannot be recorded.
    let error = bounded(limiter.acquire("a"))
        .await
        .expect_err("nobody listens");
    assert!(!store_error(&error).is_outcome_unknown(), "{error:?}");
    let error = bounded(limiter.run("a", || async { unreachable!("it ran") })).await;
    store_error(&error.map(|never: ()| never).expect_err("nobody listens"));
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 1_000);
    limiter.acquire("a").await.expect("a permit");
    for _ in 0..3 {
        server.kill9();
        store_error(
            &bounded(limiter.acquire("a"))
                .await
                .expect_err("nobody answers"),
        );
        server.restart();
        recovers(|| limiter.acquire("a")).await;
        limiter
            .acquire("b")
            .await
            .expect("once it answers, it goes on to do so");
    }
}

#[tokio::test]
async fn waiters_of_one_call_share_its_error() {
    let server = RedisServer::start();
    let store = connect(&server).await.timeout(SHORT);
    let limiter = limiter(&store, 1_000);
    recovers(|| limiter.acquire("a")).await;
    server.sigstop();
    let answers = bounded(join_all((0..200).map(|_| limiter.acquire("a")))).await;
    server.sigcont();
    for answer in answers {
        let error = answer.expect_err("nobody answers");
        assert!(store_error(&error).is_outcome_unknown(), "{error:?}");
    }
}

/// A call that was sent may be carried out later: it is said, and it is so.
#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_whose_outcome_is_unknown() {
    let server = RedisServer::start();
    let store = connect(&server).await.timeout(SHORT);
    let limiter = limiter(&store, 100);
    recovers(|| limiter.acquire("a")).await;

    server.sigstop();
    let start = Instant::now();
    let error = bounded(limiter.acquire("a"))
        .await
        .expect_err("nobody answers");
    assert!(
        start.elapsed() >= SHORT,
        "it gave up after {:?}",
        start.elapsed()
    );
    assert!(store_error(&error).is_outcome_unknown(), "{error:?}");
    assert_eq!(
        store_error(&error).to_string(),
        "redis did not answer in time"
    );
    assert_readable(&error);
    server.sigcont();

    let permit = recovers(|| limiter.acquire("a")).await;
    // One departed, one was lost on its way back, and this one departs.
    assert!(permit.remaining() <= 97, "{permit:?}");
}

#[tokio::test]
async fn the_default_timeout_is_a_second() {
    let server = RedisServer::start();
    let connected = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    let limiter = limiter(&connected, 3);
    limiter.acquire("a").await.expect("a permit");
    server.sigstop();
    let start = Instant::now();
    let error = bounded(limiter.acquire("a"))
        .await
        .expect_err("nobody answers");
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "it gave up after {:?}",
        start.elapsed()
    );
    assert!(store_error(&error).is_outcome_unknown(), "{error:?}");
}

/// The store's timeout is the one that counts, and not one that the connection brings along.
async fn waits_as_long_as_the_timeout_says(server: &RedisServer, store: RedisStore) {
    let limiter = limiter(&store.timeout(PATIENCE), 3);
    limiter.acquire("a").await.expect("a permit");
    server.sigstop();
    let thaw = async {
        sleep(Duration::from_millis(1_300)).await;
        server.sigcont();
    };
    let (answer, ()) = futures_util::join!(bounded(limiter.acquire("a")), thaw);
    answer.expect("an answer, late as it is");
}

#[tokio::test]
async fn a_long_timeout_outlasts_that_of_a_connected_store() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    waits_as_long_as_the_timeout_says(&server, store).await;
}

#[tokio::test]
async fn a_long_timeout_outlasts_that_of_a_multiplexed_connection() {
    let server = RedisServer::start();
    let connection = server.client().get_multiplexed_async_connection().await;
    waits_as_long_as_the_timeout_says(&server, connection.expect("a connection").into()).await;
}

#[tokio::test]
async fn a_broken_multiplexed_connection_fails_at_once_and_for_good() {
    let mut server = RedisServer::start();
    let connection = server.client().get_multiplexed_async_connection().await;
    let limiter = limiter(&connection.expect("a connection").into(), 3);
    limiter.acquire("a").await.expect("a permit");
    server.restart();
    for _ in 0..3 {
        store_error(
            &bounded(limiter.acquire("a"))
                .await
                .expect_err("it is not restored"),
        );
    }
}

#[tokio::test]
async fn a_connection_manager_that_never_gives_up_is_bounded_by_the_store() {
    let mut server = RedisServer::start();
    let config = ConnectionManagerConfig::new().set_number_of_retries(1_000);
    let manager = ConnectionManager::new_with_config(server.client(), config).await;
    let store = RedisStore::from(manager.expect("a connection")).timeout(SHORT);
    let limiter = limiter(&store, 1_000);
    recovers(|| limiter.acquire("a")).await;
    server.kill9();
    for _ in 0..3 {
        store_error(
            &bounded(limiter.acquire("a"))
                .await
                .expect_err("nobody listens"),
        );
    }
    server.restart();
    recovers(|| limiter.acquire("a")).await;
}

/// Who holds a slot needs no server any more.
#[tokio::test]
async fn a_waiter_with_a_slot_departs_though_the_server_is_gone() {
    let mut server = RedisServer::start();
    let store = connect(&server).await;
    let builder = Limiter::builder().quota(Quota::new(1, Duration::from_millis(100)));
    let builder = builder.guard(Duration::from_secs(2)).store(store);
    let limiter = builder.build().expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("a").await }
    });
    let name = format!("throttle:{{a}}:{}", limiter.policy().id());
    let one = server.command::<u64>(&["STRLEN", &name]);
    let deadline = Instant::now() + PATIENCE;
    while server.command::<u64>(&["STRLEN", &name]) <= one {
        assert!(Instant::now() < deadline, "no slot is reserved");
        sleep(Duration::from_millis(1)).await;
    }
    server.kill9();
    bounded(waiter).await.expect("no panic").expect("a permit");
}

/// A value that stands where a store keeps its own, by the words that put it there.
struct Foreign {
    what: &'static str,
    words: Vec<Vec<u8>>,
}

fn string(what: &'static str, bytes: impl AsRef<[u8]>) -> Foreign {
    Foreign {
        what,
        words: vec![b"SET".into(), b"KEY".into(), bytes.as_ref().into()],
    }
}

fn words(what: &'static str, words: &[&str]) -> Foreign {
    Foreign {
        what,
        words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
    }
}

fn of_other_types() -> Vec<Foreign> {
    vec![
        words("a list", &["RPUSH", "KEY", "a", "b"]),
        words("a hash", &["HSET", "KEY", "a", "b"]),
        words("a set", &["SADD", "KEY", "a", "b"]),
        words("a sorted set", &["ZADD", "KEY", "1", "a"]),
        words("a stream", &["XADD", "KEY", "1-1", "a", "b"]),
    ]
}

fn no_logs() -> Vec<Foreign> {
    // The place of the first record, how many there are and room for, and the last; in this order.
    let header = |first: u32, count: u32, room: u32, last: u64| {
        let numbers = [first, count, room].map(u32::to_be_bytes);
        [numbers.as_flattened(), &last.to_be_bytes()].concat()
    };
    let ring = |header: Vec<u8>, records: usize| [header, vec![1; records * 8]].concat();
    // Bytes of an offset and of a count; the first record; the rest.
    let short = |offset: u8, count: u8, first: u64, rest: &[u8]| {
        let first = &first.to_le_bytes()[..7];
        [&[128 + 8 * offset + count][..], first, rest].concat()
    };
    vec![
        string("one byte", "x"),
        string("a header alone", header(0, 0, 0, 0)),
        string("half a record", [header(0, 1, 1, 1), vec![0; 4]].concat()),
        string("a text", "hello, world: this is not for you"),
        string("random bytes", [0x9d; 8 * 6]),
        string(
            "more records than there is room",
            ring(header(0, 3, 2, 1), 2),
        ),
        string("more room than there is", ring(header(0, 2, 3, 1), 2)),
        string("less room than there is", ring(header(0, 1, 1, 1), 2)),
        string("a place behind the end", ring(header(7, 1, 2, 1), 2)),
        string("no records", ring(header(0, 0, 2, 1), 2)),
        string(
            "counts that overflow",
            ring(header(1 << 30, u32::MAX, u32::MAX, 1), 2),
        ),
        string(
            "a record at the end of time",
            ring(header(0, 1, 1, u64::MAX), 1),
        ),
        string(
            "a record in a million years",
            ring(header(0, 1, 2, 9_000_000_000_000_000_000), 2),
        ),
        string("a million bytes", vec![0xff; 1_000_000]),
        string(
            "a short log without its first record",
            &short(4, 0, 0, &[])[..5],
        ),
        string("offsets of no bytes", short(0, 0, 1, &[])),
        string("half an offset", short(4, 0, 1, &[1, 2])),
        string("counts in a log", short(1, 1, 1, &[1, 1, 1])),
        string("more than a short log holds", short(1, 0, 1, &[1; 16])),
        string(
            "much more than a short log holds",
            short(1, 0, 1, &[1; 1_000]),
        ),
        string("records in disorder", short(1, 0, 1, &[5, 4])),
        string(
            "a first record at the end of time",
            short(1, 0, u64::MAX, &[]),
        ),
        string(
            "a last record at the end of time",
            short(7, 0, 1, &[0xff; 7]),
        ),
    ]
}

fn no_buckets() -> Vec<Foreign> {
    let packed = |header: u8, rest: &[u8]| [&[header, 1, 0, 0, 0, 0, 0, 0], rest].concat();
    vec![
        string("nothing", ""),
        string("one byte", "x"),
        string("a text", "hello, world: this is not for you"),
        string("random bytes", [0x9d; 8 * 6 + 1]),
        string("no counts", packed(128 + 8, &[1, 2])),
        string("no count of the first", packed(128 + 8 + 1, &[])),
        string("half a bucket", packed(128 + 8 + 1, &[1, 1])),
        string("buckets in disorder", packed(128 + 8 + 1, &[1, 5, 1, 4, 1])),
        string("a million bytes", vec![0xff; 1_000_000]),
    ]
}

fn no_windows() -> Vec<Foreign> {
    vec![
        string("nothing", ""),
        string("one byte", "x"),
        string("half a window", [1; 10]),
        string("more than a window", [1; 12]),
        string("half an end", [1; 17]),
        string("a text", "hello, world: this is not for you"),
        string("a start at the end of time", [0xff; 11]),
        string(
            "an end before its start",
            [2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        ),
    ]
}

fn no_numbers() -> Vec<Foreign> {
    vec![
        string("nothing", ""),
        string("a text", "soon"),
        string("a negative number", "-5"),
        string("a fraction", "1.5"),
        string("infinity", "inf"),
        string("negative infinity", "-inf"),
        string("no number", "nan"),
        string("an absurd number", "99999999999999999999"),
        string("a number beyond all numbers", "1e999"),
        string("a list of numbers", "1,2"),
        string("a NUL", "\0"),
        string("random bytes", [0x9d, 0xff, 0x00, 0x13]),
    ]
}

fn no_free_slots() -> Vec<Foreign> {
    // At, recorded at, cost, and the receipts of all kinds: those of three numbers and one window.
    let slot = |numbers: [u64; 3]| {
        let numbers = numbers.into_iter().chain([1; 6]);
        numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    vec![
        string("nothing", ""),
        string("a text", "soon"),
        string("half a slot", &slot([1, 1, 1])[..44]),
        string("a slot and a half", [slot([1, 1, 1]), vec![0; 8]].concat()),
        string("random bytes", [0x9d, 0xff, 0x00, 0x13]),
        string("a slot at the end of time", slot([u64::MAX, 1, 1])),
        string("a slot in a million years", slot([1 << 62, 1 << 62, 1])),
        string("a record in a million years", slot([1, 1 << 62, 1])),
    ]
}

fn put<T: FromRedisValue>(server: &RedisServer, name: &str, foreign: &Foreign) -> T {
    let mut connection = server.client().get_connection().expect("a connection");
    let mut command = redis::Cmd::new();
    for word in &foreign.words {
        if word == b"KEY" {
            command.arg(name);
        } else {
            command.arg(word);
        }
    }
    command.query(&mut connection).expect("a valid command")
}

fn dump(server: &RedisServer, name: &str) -> Vec<u8> {
    let mut connection = server.client().get_connection().expect("a connection");
    cmd("DUMP")
        .arg(name)
        .query(&mut connection)
        .expect("a value")
}

/// The policy of all kinds, and the names under which its free slots and its quotas stand.
fn all_kinds() -> (Arc<Policy>, Vec<String>) {
    let counted_by = |algorithm| Quota::new(10, LONG).algorithm(algorithm);
    let builder = [
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 50 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow {
            start: WindowStart::Clock,
        },
    ]
    .into_iter()
    .fold(quota(5), |builder, it| builder.quota(counted_by(it)));
    let builder = builder.name("all");
    let policy = builder.build().expect("a valid policy").policy();
    let base = format!("throttle:{{a}}:{}", policy.id());
    let quotas = policy.id().split('+').enumerate();
    let names = quotas.map(|(place, _)| format!("{base}:{place}"));
    let names = [format!("{base}:free")].into_iter().chain(names).collect();
    (policy, names)
}

/// Where the state of a quota stands among the names whose text ends like this.
fn place(policy: &Policy, end: &str) -> usize {
    let mut quotas = policy.id().split('+');
    1 + quotas
        .position(|it| it.ends_with(end))
        .expect("such a quota")
}

async fn slots(store: &RedisStore, key: &Key, policy: &Policy, count: u32) -> Vec<Slot> {
    let asks = [Ask {
        count,
        cost: 1,
        max_wait: u64::MAX,
    }];
    let mut reserve = Reserve::new(key, policy);
    reserve.asks = &asks;
    let answer: Reserved = store.reserve(&reserve).await.expect("an answer");
    let slot = |outcome: &Outcome| match outcome {
        Outcome::Granted(slot) => slot.clone(),
        Outcome::Refused { wait } => panic!("refused for a wait of {wait} us"),
    };
    answer.outcomes().iter().map(slot).collect()
}

/// Whatever stands under one name: each call fails, and neither it nor what stands under the others
/// is changed.
async fn leaves_foreign_values_alone(quota: Option<&str>, foreign: Vec<Foreign>) {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let (policy, names) = all_kinds();
    let place = quota.map_or(0, |quota| place(&policy, quota));
    let key = Key::from("a");
    let mut held = slots(&store, &key, &policy, 6).await;
    let free = [held.remove(3)];
    store
        .release(&Release::new(&key, &policy, &free))
        .await
        .expect("an answer");
    let others: Vec<_> = names
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != place)
        .collect();
    let dumps = || {
        others
            .iter()
            .map(|(_, name)| dump(&server, name))
            .collect::<Vec<_>>()
    };
    let before = dumps();
    for foreign in of_other_types().into_iter().chain(foreign) {
        server.command::<()>(&["DEL", &names[place]]);
        put::<redis::Value>(&server, &names[place], &foreign);
        let value = dump(&server, &names[place]);
        let what = foreign.what;
        let reserved = bounded(store.reserve(&Reserve::new(&key, &policy))).await;
        let Err(reserved) = reserved else {
            panic!("{what} at {place} is taken for state: {reserved:?}");
        };
        let released = bounded(store.release(&Release::new(&key, &policy, &held))).await;
        let released = released.expect_err(what);
        for error in [reserved, released] {
            assert!(
                !error.is_outcome_unknown(),
                "{what}: {}",
                everything(&error)
            );
            assert_eq!(error.to_string(), "redis refused the call", "{what}");
            assert_readable(&error);
        }
        assert_eq!(dump(&server, &names[place]), value, "{what} is changed");
        assert_eq!(
            dumps(),
            before,
            "{what} at {place}: another's state is changed"
        );
    }
}

#[tokio::test]
async fn what_is_no_log_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(Some("5/10m"), no_logs()).await;
}

#[tokio::test]
async fn what_is_no_number_is_an_error_and_left_alone() {
    for quota in ["spacing", "gcra-burst=5", "leaky-bucket-capacity=50"] {
        leaves_foreign_values_alone(Some(quota), no_numbers()).await;
    }
}

#[tokio::test]
async fn what_is_no_bucket_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(Some("sliding-buckets-buckets=10"), no_buckets()).await;
}

#[tokio::test]
async fn what_is_no_window_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(Some("fixed-window"), no_windows()).await;
}

#[tokio::test]
async fn what_is_no_list_of_free_slots_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(None, no_free_slots()).await;
}

#[tokio::test]
async fn a_foreign_value_is_an_error_to_every_caller_until_it_is_gone() {
    let server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 2);
    let name = format!("throttle:{{a}}:{}", limiter.policy().id());
    server.command::<()>(&["RPUSH", &name, "mine"]);
    for _ in 0..3 {
        let error = bounded(limiter.acquire("a"))
            .await
            .expect_err("it is no log");
        assert!(!store_error(&error).is_outcome_unknown());
        assert!(
            everything(&error).contains("WRONGTYPE"),
            "{}",
            everything(&error)
        );
        store_error(
            &bounded(limiter.try_acquire("a"))
                .await
                .expect_err("it is no log"),
        );
    }
    limiter.acquire("b").await.expect("other keys go on");
    server.command::<()>(&["DEL", &name]);
    // What failed has consumed nothing.
    assert_eq!(
        [granted(&limiter, "a").await, granted(&limiter, "a").await],
        [true; 2]
    );
    assert!(!granted(&limiter, "a").await);
}

#[tokio::test]
async fn a_user_who_may_not_run_scripts_is_refused_and_charged_nothing() {
    let server = RedisServer::start();
    let rules = [
        "ACL",
        "SETUSER",
        "limited",
        "on",
        ">hunter2",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
    ];
    server.command::<()>(&rules);
    let url = server.url().replace("redis://", "redis://limited:hunter2@");
    let store = bounded(RedisStore::connect(&url))
        .await
        .expect("a connection");
    let limiter = limiter(&store.timeout(PATIENCE), 2);
    for _ in 0..5 {
        let error = bounded(limiter.acquire("a")).await.expect_err("it may not");
        assert!(!store_error(&error).is_outcome_unknown(), "{error:?}");
        assert!(
            everything(&error).contains("NoPerm"),
            "{}",
            everything(&error)
        );
        assert_readable(&error);
    }
    server.command::<()>(&["ACL", "SETUSER", "limited", "+@scripting"]);
    assert_eq!(
        [granted(&limiter, "a").await, granted(&limiter, "a").await],
        [true; 2]
    );
    assert!(!granted(&limiter, "a").await);
}

/// By `maxmemory`, and by being a replica that may not write.
#[tokio::test]
async fn a_server_that_takes_no_writes_refuses_and_charges_nothing() {
    let server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 2);
    let another = limiter.clone();
    another.acquire("b").await.expect("a permit");
    for (on, off) in [
        (
            ["CONFIG", "SET", "maxmemory", "1"],
            ["CONFIG", "SET", "maxmemory", "0"],
        ),
        (
            ["REPLICAOF", "127.0.0.1", "1", ""],
            ["REPLICAOF", "NO", "ONE", ""],
        ),
    ] {
        let words = |words: [&'static str; 4]| words.into_iter().filter(|it| !it.is_empty());
        server.command::<()>(&words(on).collect::<Vec<_>>());
        let error = bounded(limiter.acquire("a"))
            .await
            .expect_err("it takes no writes");
        assert!(
            !store_error(&error).is_outcome_unknown(),
            "{}",
            everything(&error)
        );
        server.command::<()>(&words(off).collect::<Vec<_>>());
    }
    assert_eq!(
        [granted(&limiter, "a").await, granted(&limiter, "a").await],
        [true; 2]
    );
    assert!(!granted(&limiter, "a").await);
}

#[tokio::test]
async fn a_release_that_fails_is_an_error_and_consumes_nothing_more() {
    let mut server = RedisServer::start();
    let store = connect(&server).await;
    let policy = quota(2).build().expect("a valid policy").policy();
    let key = Key::from("a");
    let held = slots(&store, &key, &policy, 3).await;
    let last = Release::new(&key, &policy, &held[2..]);
    server.sigstop();
    let error = bounded(store.clone().timeout(SHORT).release(&last)).await;
    assert!(error.expect_err("nobody answers").is_outcome_unknown());
    server.sigcont();
    // It was carried out, or it was not; all that follow have their places.
    let next = slots(&store, &key, &policy, 1).await;
    let window = u64::try_from(LONG.as_micros()).expect("ten minutes");
    assert!(next[0].at >= held[0].at + window && next[0].at < held[0].at + window * 3 / 2);
    server.kill9();
    for _ in 0..3 {
        assert_readable(
            &bounded(store.release(&last))
                .await
                .expect_err("nobody listens"),
        );
    }
}

const SECRET: &str = "hunter2-s3cr3t";

fn assert_secret(error: &(dyn StdError + 'static)) {
    let text = everything(error);
    assert!(
        !text.contains("hunter2") && !text.contains("s3cr3t"),
        "{text}"
    );
}

#[tokio::test]
async fn passwords_never_appear() {
    let mut server = RedisServer::start();
    server.command::<()>(&[
        "ACL",
        "SETUSER",
        "user",
        "on",
        &format!(">{SECRET}"),
        "~*",
        "&*",
        "+@all",
    ]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addresses = [
        "127.0.0.1:notaport/".to_owned(),
        "127.0.0.1:99999/".to_owned(),
        "/".to_owned(),
        "127.0.0.1/notadatabase".to_owned(),
        "127.0.0.1:1/".to_owned(),
        "no.such.host.invalid/".to_owned(),
        format!("{}/", silent.local_addr().expect("an address")),
        format!("127.0.0.1:{}/99999", server.port()),
    ];
    for address in addresses {
        for scheme in ["redis", "rediss", "unknown"] {
            let url = format!("{scheme}://user:{SECRET}@{address}");
            assert_secret(
                &bounded(RedisStore::connect(&url))
                    .await
                    .expect_err("no server"),
            );
        }
    }
    for wrong in [
        format!("user:{SECRET}-not"),
        format!(":{SECRET}"),
        format!("nobody:{SECRET}"),
    ] {
        let url = format!("redis://{wrong}@127.0.0.1:{}/", server.port());
        assert_secret(
            &bounded(RedisStore::connect(&url))
                .await
                .expect_err("a wrong password"),
        );
    }

    let url = format!("redis://user:{SECRET}@127.0.0.1:{}/", server.port());
    let store = bounded(RedisStore::connect(&url))
        .await
        .expect("a connection")
        .timeout(SHORT);
    let limiter = limiter(&store, 100);
    let acquire = limiter.acquire("a");
    let shown = format!(
        "{store:?} {store:#?} {limiter:?} {limiter:#?} {acquire:?} {:?}",
        quota(1).store(store.clone())
    );
    assert!(
        !shown.contains("hunter2") && !shown.contains("s3cr3t"),
        "{shown}"
    );
    drop(acquire);
    recovers(|| limiter.acquire("a")).await;
    server.sigstop();
    assert_secret(
        &bounded(limiter.acquire("a"))
            .await
            .expect_err("nobody answers"),
    );
    server.sigcont();
    server.kill9();
    for _ in 0..3 {
        assert_secret(
            &bounded(limiter.acquire("a"))
                .await
                .expect_err("nobody listens"),
        );
    }
    // Without its users, so the password is wrong now.
    server.restart();
    for _ in 0..3 {
        assert_secret(
            &bounded(limiter.acquire("a"))
                .await
                .expect_err("nobody knows the user"),
        );
    }
}

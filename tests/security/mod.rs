//! Hostile input does no harm, and secrets stay secret.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use support::errors::everything;
use support::keyspace::names;
use support::monitor::Monitor;
use support::spend::spend;
use tokio::runtime::Runtime;
use tower_throttle::key::{self, Extracted, Key, KeyExtractor};
use tower_throttle::store::inspect::StoredKey;

use crate::prelude::*;

mod urls;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Two quotas that hold jointly.
pub(crate) fn quotas() -> LimiterBuilder {
    let quota = |limit| Quota::new(limit, LONG);
    Limiter::builder().quota(quota(5)).quota(quota(7))
}

const SECRET: &str = "sk-live-4eC39HqLyjWDarjtT1zdp7dc";

fn request() -> http::Request<()> {
    http::Request::get("https://api.example.com/")
        .header("authorization", format!("Bearer {SECRET}"))
        .header("x-api-key", SECRET)
        .body(())
        .expect("a valid request")
}

fn extracted(extractor: &impl KeyExtractor<http::Request<()>>) -> Key {
    match extractor.extract(&request()) {
        Extracted::Key(key) => key,
        other => panic!("{other:?}"),
    }
}

fn shown(it: &dyn Debug) -> String {
    format!("{it:?} {it:#?}")
}

/// Everything that a limiter does with a key, and all that it says of it.
async fn use_key(limiter: &Limiter, key: &Key) -> String {
    let mut says = shown(key);
    for _ in 0..5 {
        let permit = limiter.acquire(key).await.expect("a permit");
        says += &shown(&permit);
    }
    let refused = limiter.acquire(key).max_wait(LONG / 2).await;
    says += &everything(&refused.expect_err("more than the quota"));
    says += &everything(
        &limiter
            .acquire(key)
            .cost(100)
            .await
            .expect_err("too costly"),
    );
    says += &shown(&limiter.try_acquire(key).await.expect("an answer"));
    says += &shown(&limiter.peek(key).await.expect("an answer"));
    says += &shown(&limiter.acquire(key));
    limiter
        .pause(key, Instant::now() + LONG)
        .await
        .expect("a pause");
    limiter.resume(key).await.expect("an answer");
    says
}

#[tokio::test]
async fn a_hashed_secret_is_seen_nowhere() {
    let server = RedisServer::start();
    let store = server.store().await;
    let limiter = build(quotas().store(store));
    let api_key = key::header("x-api-key");
    let tuple = (key::host(), key::bearer_token());
    let keys = [
        extracted(&key::bearer_token()),
        extracted(&api_key),
        extracted(&tuple),
    ];
    let mut says = shown(&api_key) + &shown(&limiter);
    let monitor = Monitor::start(&server).await;
    for key in &keys[1..] {
        says += &use_key(&limiter, key).await;
    }
    let stored = names(&server);
    let seen = monitor.finish(&server).await;
    assert!(!says.contains(SECRET), "{says}");
    let scripts = seen.iter().filter(|it| it.name == "evalsha");
    assert!(stored.len() > 1 && scripts.count() > 10);
    let sent = seen.iter().map(|sent| &sent.text);
    for text in stored.iter().chain(sent) {
        assert!(!text.contains(SECRET), "{text}");
    }
    // The token is one, however it is carried; and the hash is what is seen.
    assert_eq!(keys[0], keys[1]);
    assert!(
        stored.iter().any(|name| name.contains(keys[0].as_str())),
        "{stored:?}"
    );
}

const CHANNEL: &str = "throttle:nudges";

/// Nudges are only hints: a flood of them, true or not, lets no request depart early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_nudges_and_other_messages_change_nothing() {
    let server = RedisServer::start();
    let window = Duration::from_millis(300);
    let builder = under(&[]).quota(Quota::new(5, window)).buffer(window / 10);
    let limiter = build(builder.store(server.store().await));
    limiter.acquire("a").await.expect("a permit");
    let (client, has_ended) = (server.client(), Arc::new(AtomicBool::new(false)));
    let ended = has_ended.clone();
    let flood = std::thread::spawn(move || {
        let mut connection = client.get_connection().expect("a connection");
        let long = "x".repeat(100_000);
        let messages = [
            &b"a"[..],
            b"",
            b"b",
            &[0xff, 0, 0x80],
            long.as_bytes(),
            b"a\r\nPING",
        ];
        let mut received = 0;
        while !ended.load(Ordering::Relaxed) {
            for message in messages {
                let publish = redis::cmd("PUBLISH").arg(CHANNEL).arg(message).clone();
                let count: u64 = publish.query(&mut connection).expect("an answer");
                received += count;
            }
        }
        received
    });
    let start = Instant::now();
    let departures = (0..40).map(|_| async {
        bounded(limiter.acquire("a")).await.expect("a permit");
        start.elapsed()
    });
    let history: History = join_all(departures).await.into_iter().collect();
    has_ended.store(true, Ordering::Relaxed);
    assert!(flood.join().expect("no panic") > 0, "the store subscribes");
    history.assert_at_most(5, window);
}

/// Texts that try to be something else, and any others.
fn text() -> impl Strategy<Value = String> {
    let nasty = [
        "\r\nFLUSHALL\r\n",
        "$-1\r\n",
        "a\0b",
        "{}",
        "a}b{c",
        "'); redis.call('FLUSHALL') --",
        "*?[a-z]",
        "\u{202e}\u{feff}\u{10ffff}",
    ];
    let nasty = (prop::sample::select(nasty.to_vec()), 1..40_usize);
    let nasty = nasty.prop_map(|(it, times)| it.repeat(times));
    prop_oneof![nasty, "\\PC{1,200}", "[!-~]{1,20}", "[ -~]{1,20}"]
}

#[test]
fn a_name_or_prefix_is_refused_unless_it_leaves_the_tag_alone() {
    let runtime = Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let store = runtime.block_on(server.store());
    proptest!(ProptestConfig::with_cases(100), |(text in text(), is_prefix: bool)| {
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        let is_fine = text.len() <= 128 && text.bytes().all(visible);
        let _context = runtime.enter();
        let (store, builder, name) = match is_prefix {
            true => match store.clone().prefix(&text) {
                Ok(store) => (store, quotas(), None),
                Err(_) => {
                    prop_assert!(!is_fine, "{:?}", text);
                    return Ok(());
                }
            },
            false => (store.clone(), quotas().name(&text), Some(&*text)),
        };
        prop_assert_eq!(builder.clone().build().is_ok(), is_fine, "{:?}", text);
        if is_fine {
            runtime.block_on(async {
                spend(&store, builder, "a", 3).await;
                let names = names(&server);
                let has_tag =
                    |it: &String| it.contains(":{a}") && it.matches(['{', '}']).count() == 2;
                prop_assert!(names.len() == 1 && names.iter().all(has_tag), "{:?}", names);
                let stored = StoredKey::new(&"a".into(), name);
                let page = store.keys().next_page().await.expect("a page");
                prop_assert_eq!(page.expect("one"), [stored.clone()]);
                store.delete(&stored).await.expect("an answer");
                Ok(())
            })?;
        }
    });
}

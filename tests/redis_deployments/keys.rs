//! What a Redis holds: every key is listed, wherever it is, and how it stands.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{
    KeyState, Keys, Outcome, RedisStore, Reserve, Reserved, Store as _, StoreError, StoredKey, Word,
};
use tower_throttle::{Limiter, Policy};

use crate::promises::PATIENCE;
use crate::support::cluster::Cluster;
use crate::support::command_stats::CommandStats;
use crate::support::errors::bounded;
use crate::support::redis_server::RedisServer;
use crate::support::rights::do_everything;
use crate::support::sentinel::{NAME, Sentinels};
use crate::support::slots::slots;

/// So long that nothing leaves a window meanwhile.
const TEXTS: [&str; 8] = [
    "10/h",
    "200/h",
    "3000/h",
    "2000/h sliding-buckets buckets=1000",
    "10/h gcra burst=5",
    "10/h fixed-window start=first-request",
    "10/h spacing",
    "10/h leaky-bucket capacity=1000",
];

pub(crate) async fn connect(server: &RedisServer) -> RedisStore {
    let store = bounded(RedisStore::connect(&server.url())).await;
    store.expect("a connection").timeout(PATIENCE)
}

pub(crate) fn policy(text: &str, name: &str) -> Policy {
    let quota = text.parse().expect("a quota");
    let limiter = Limiter::builder().name(name).quota(quota).build();
    (*limiter.expect("a valid policy").policy()).clone()
}

pub(crate) async fn all(mut keys: Keys) -> BTreeSet<StoredKey> {
    let mut found = BTreeSet::new();
    while let Some(page) = bounded(keys.next_page()).await.expect("a page") {
        found.extend(page);
    }
    found
}

async fn look(store: &RedisStore, key: &StoredKey) -> Result<KeyState, StoreError> {
    store.look(std::slice::from_ref(key)).await.remove(0)
}

/// Of so many keys one slot each, by two policies in turn.
pub(crate) async fn spend(store: &RedisStore, count: usize) -> BTreeSet<StoredKey> {
    let policies = [policy("10/h", "a:b+c"), policy("5/h gcra burst=5", "d")];
    let keys = (0..count).map(|number| Key::from(format!("key {number} {{é}}")));
    let long = Key::from("long ".repeat(30));
    let keys: Vec<_> = keys.chain([long]).collect();
    let each = || keys.iter().zip(policies.iter().cycle());
    join_all(each().map(|(key, policy)| slots(store, key, policy, 1))).await;
    each()
        .map(|(key, policy)| StoredKey::new(key, policy))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_listed_and_nothing_else() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let spent = spend(&store, 3_000).await;
    for name in [
        "throttle:born",
        "throttle:{a}:strange",
        "other",
        "throttles:{a}:10/s",
    ] {
        server.command::<()>(&["SET", name, "1"]);
    }
    spend(&store.clone().prefix("throttle?").expect("a prefix"), 50).await;
    let before = CommandStats::of(&server);
    assert_eq!(all(store.keys()).await, spent);
    let after = CommandStats::of(&server).since(&before);
    assert_eq!(after.calls("keys"), 0);
    assert!((4..=8).contains(&after.calls("scan")), "{after:?}");
    assert_eq!(all(store.keys().page_size(100)).await, spent);
    let other = store.clone().prefix("throttle?").expect("a prefix");
    assert_eq!(all(other.keys()).await.len(), 51);

    let key = Key::from("key 17 {é}");
    let of_key = all(store.keys().of(&key)).await;
    let of_key: Vec<_> = of_key.into_iter().collect();
    assert_eq!(
        of_key,
        [StoredKey::new(&key, &policy("5/h gcra burst=5", "d"))]
    );
    assert_eq!(of_key[0].key(), Some(key));
    let digests = spent.iter().filter(|stored| stored.key().is_none());
    let digests: Vec<_> = digests.map(StoredKey::encoded).collect();
    assert!(
        matches!(digests[..], [digest] if digest.starts_with("%sha256:")),
        "{digests:?}"
    );
    assert!(all(store.keys().of(&"key".into())).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_begins_the_list_anew() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let spent = spend(&store, 300).await;
    let mut keys = store.keys().page_size(10);
    let mut found = BTreeSet::new();
    let (mut pages, mut failures) = (0, 0);
    loop {
        match bounded(keys.next_page()).await {
            Ok(None) => break,
            Ok(Some(page)) => {
                pages += 1;
                found.extend(page);
            }
            Err(_) => failures += 1,
        }
        assert!(pages + failures < 1_000);
        if pages == 8 && failures == 0 {
            server.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
    }
    assert_eq!(found, spent);
    assert!(pages > 35, "{pages}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_on_a_page_is_told_it_next() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let spent = spend(&store, 300).await;
    let mut keys = store.keys().page_size(10);
    let mut told = Vec::new();
    for _ in 0..15 {
        told.extend(
            bounded(keys.next_page())
                .await
                .expect("a page")
                .expect("more"),
        );
    }
    server.sigstop();
    let given_up = tokio::time::timeout(Duration::from_millis(20), keys.next_page()).await;
    assert!(given_up.is_err());
    server.sigcont();
    while let Some(page) = bounded(keys.next_page()).await.expect("a page") {
        told.extend(page);
    }
    // From its beginning, the list would tell of half of them twice.
    assert!(told.len() < 350, "{}", told.len());
    assert!((300..400).contains(&keys.looked_at()), "{keys:?}");
    assert_eq!(BTreeSet::from_iter(told), spent);
}

/// When a request may depart, and when all may, on the server's clock.
fn times(state: &KeyState) -> [u64; 2] {
    let at = |span: Duration| state.now() + span.as_micros() as u64;
    let departs = if state.delay().is_zero() {
        0
    } else {
        at(state.delay())
    };
    [departs, at(state.reset())]
}

/// What a look, a limiter and a glance are told between two looks that tell the same: as time passes, no less
/// remains.
async fn told_at_once(
    store: &RedisStore,
    key: &Key,
    policy: &Policy,
) -> (KeyState, Reserved, KeyState) {
    let stored = StoredKey::new(key, policy);
    for _ in 0..1_000 {
        let seen = look(store, &stored).await.expect("a look");
        let peek = store
            .peek(&Reserve::new(key, policy))
            .await
            .expect("a look");
        let glance = store.glance(std::slice::from_ref(&stored)).await.remove(0);
        let glance = glance.expect("a glance");
        let again = look(store, &stored).await.expect("a look");
        if (seen.remaining(), times(&seen)) == (again.remaining(), times(&again)) {
            return (seen, peek, glance);
        }
    }
    panic!("{text} goes on changing", text = policy.id());
}

/// What a look and a glance tell is what a limiter is told.
async fn tells_how_keys_stand(store: &RedisStore) {
    for text in TEXTS {
        let policy = policy(text, "a");
        let limit = policy.quotas()[0].limit();
        for count in [1, 4, 150, 1_500, 3_300] {
            if count > limit + 300 {
                continue;
            }
            let key = Key::from(format!("{text} {count}"));
            slots(store, &key, &policy, count).await;
            let (seen, peek, glance) = told_at_once(store, &key, &policy).await;
            let context = format!("{text}, {count}: {seen:?}, {peek:?}, {glance:?}");
            let Outcome::Refused { wait } = peek.outcomes()[0] else {
                panic!("{context}");
            };
            let departs = if wait == 0 { 0 } else { peek.now() + wait };
            let all = peek.now() + peek.reset().as_micros() as u64;
            assert_eq!([departs, all], times(&seen), "{context}");
            assert_eq!(times(&glance), times(&seen), "{context}");
            assert_eq!(peek.remaining(), seen.remaining(), "{context}");
            assert_eq!(glance.remaining(), seen.remaining(), "{context}");
            let spent = seen.spent()[0];
            assert_eq!(spent.quota(), policy.quotas()[0]);
            assert_eq!(spent.used(), count.min(spent.capacity()), "{context}");
            assert_eq!(glance.spent()[0].used(), spent.used(), "{context}");
            let departed = glance.spent()[0].departed();
            assert!(
                departed.is_none() || departed == spent.departed(),
                "{context}"
            );
            let is_long = ["a:3000/h", "a:200/h"].contains(&policy.id());
            let is_open = is_long && (126..limit).contains(&count);
            assert_eq!(
                (seen.is_exact(), glance.is_exact()),
                (true, !is_open),
                "{context}"
            );
            let bytes: usize = seen.values().iter().map(|it| it.bytes()).sum();
            assert!(bytes > 0 && seen.values().iter().all(|it| it.expiry().is_some()));
        }
    }
    let nothing = StoredKey::new(&"nothing".into(), &policy("10/h", "a"));
    let seen = look(store, &nothing).await.expect("a look");
    assert_eq!((seen.remaining(), seen.values().len()), (10, 0));
    assert!(seen.delay().is_zero() && seen.spent()[0].used() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_and_a_glance_tell_what_a_limiter_is_told() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    tells_how_keys_stand(&store).await;
    server.command::<()>(&["FLUSHALL"]);
    let plain = store.scripting(false).expect("a way to connect");
    tells_how_keys_stand(&plain.server_time(false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_a_key_is_told() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let (key, policy) = (Key::from("a"), policy("10/h spacing", "a"));
    let minute = 60_000_000;
    let pause = Word::Pause {
        span: minute,
        departed: u64::MAX,
    };
    let allow = Word::Allow {
        left: 7,
        span: 2 * minute,
    };
    for word in [pause, allow] {
        store.heed(&key, &policy, word).await.expect("it is heeded");
    }
    let found = all(store.keys()).await;
    assert_eq!(found.len(), 1, "of what stands aside alone");
    for state in [
        look(&store, &StoredKey::new(&key, &policy)).await,
        store
            .glance(&found.iter().cloned().collect::<Vec<_>>())
            .await
            .remove(0),
    ] {
        let state = state.expect("a look");
        let left = Duration::from_secs(30)..=Duration::from_secs(60);
        assert!(left.contains(&state.pause().expect("a pause")), "{state:?}");
        assert!(left.contains(&state.delay()), "{state:?}");
        assert_eq!(state.allowance().expect("an allowance").remaining(), 7);
        assert_eq!((state.remaining(), state.rest()), (0, None));
    }
}

async fn replicas_have_all(cluster: &Cluster, keys: usize) {
    let deadline = Instant::now() + 3 * PATIENCE;
    let held = || {
        let sizes = cluster
            .servers
            .iter()
            .map(|it| it.command::<usize>(&["DBSIZE"]));
        sizes.sum::<usize>()
    };
    while held() < 2 * keys {
        assert!(Instant::now() < deadline, "{} of {keys} twice", held());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_servers_of_a_cluster_are_asked() {
    let mut cluster = Cluster::start();
    let store = bounded(RedisStore::connect_cluster(cluster.urls())).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    let spent = spend(&store, 200).await;
    assert_eq!(all(store.keys().page_size(20)).await, spent);
    let keys: Vec<_> = spent.iter().cloned().collect();
    for states in [store.glance(&keys).await, store.look(&keys).await] {
        for state in states {
            assert_eq!(state.expect("a state").spent()[0].used(), 1);
        }
    }
    let key = Key::from("key 17 {é}");
    let scans = || {
        let calls = cluster
            .servers
            .iter()
            .map(|it| CommandStats::of(it).calls("scan"));
        calls.filter(|calls| *calls > 0).count()
    };
    assert_eq!(scans(), 3, "the primaries and no replica");
    let before: Vec<_> = cluster.servers.iter().map(CommandStats::of).collect();
    assert_eq!(all(store.keys().of(&key)).await.len(), 1);
    let asked = cluster.servers.iter().zip(&before);
    let asked = asked.filter(|(it, before)| CommandStats::of(it).since(before).calls("scan") > 0);
    assert_eq!(asked.count(), 1, "who holds the key");

    // Who took over from one that is gone has its keys.
    let [first, ..] = cluster.keys_of_each();
    let primary = cluster.primary_of(&first);
    replicas_have_all(&cluster, spent.len()).await;
    cluster.servers[primary].kill9();
    let mut others = BTreeSet::new();
    let mut keys = store.keys();
    let mut passed_over = 0;
    loop {
        match bounded(keys.next_page()).await {
            Ok(Some(page)) => others.extend(page),
            Ok(None) => break,
            Err(_) => {
                assert!(keys.pass_over());
                passed_over += 1;
            }
        }
        assert!(passed_over < 10);
    }
    let is_other = |stored: &&StoredKey| {
        let name = format!("throttle:{{{}}}", stored.encoded());
        cluster.primary_of(&name) != primary
    };
    let spent_at_others = spent.iter().filter(is_other).cloned();
    assert!(others.is_superset(&spent_at_others.collect()));
    assert!(!keys.pass_over());
    let deadline = Instant::now() + 3 * PATIENCE;
    let found = loop {
        let mut keys = store.keys();
        let mut found = BTreeSet::new();
        let error = loop {
            match bounded(keys.next_page()).await {
                Ok(Some(page)) => found.extend(page),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        match error {
            // Not before somebody has them: what is missing is said.
            None => break found,
            Some(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(found, spent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_that_sentinels_name_is_asked() {
    let sentinels = Sentinels::start();
    let store = bounded(RedisStore::connect_sentinel(sentinels.urls(), NAME)).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    let spent = spend(&store, 50).await;
    assert_eq!(all(store.keys()).await, spent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_list_takes_the_rights_that_the_guide_adds() {
    let server = RedisServer::start();
    super::rights::set_user(&server, "throttle", &[]);
    let store = bounded(RedisStore::connect(&super::rights::url_of(
        &server, "throttle",
    )))
    .await;
    let store = store.expect("a connection").timeout(PATIENCE);
    do_everything(&store).await;
    let spent = spend(&store, 10).await;
    let error = store.keys().next_page().await.expect_err("no right to it");
    assert!(!error.is_outage(), "{error:?}");
    let one = spent.first().expect("a key");
    let error = look(&store, one).await.expect_err("no right to it");
    assert!(!error.is_outage(), "{error:?}");
    let more = super::rights::besides("listing keys");
    super::rights::set_user(&server, "throttle", &more);
    assert!(all(store.keys()).await.is_superset(&spent));
    look(&store, one).await.expect("a look");
    for state in store.glance(&spent.into_iter().collect::<Vec<_>>()).await {
        state.expect("a glance");
    }
}

//! The server's clock is set, while it runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

use super::load::Load;
use super::{LIMIT, REST, WINDOW, strict};
use support::redis_server::{RedisServer, redis_6_2};

/// A server whose clock is `libfaketime`'s, which needs a server without jemalloc.
struct Settable {
    server: RedisServer,
    dir: TempDir,
}

impl Settable {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (wrapper, clock) = (dir.path().join("server"), dir.path().join("clock"));
        fs::write(&clock, "+0").expect("a new file");
        let script = format!(
            "#!/bin/sh\nexec env LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 \
             FAKETIME_DONT_FAKE_MONOTONIC=1 {} \"$@\"\n",
            libfaketime().display(),
            clock.display(),
            redis_6_2().display(),
        );
        // Another process writes the program. A server that another test starts would inherit the open file, and a file
        // that is open for writing cannot be run.
        let text = dir.path().join("text");
        fs::write(&text, script).expect("a new file");
        let mut install = Command::new("install");
        let status = install
            .args(["-m", "700"])
            .arg(&text)
            .arg(&wrapper)
            .status();
        assert!(status.expect("coreutils").success());
        let server = RedisServer::start_as(wrapper, |_| Vec::new());
        Self { server, dir }
    }

    /// Sets the clock so many seconds ahead of the true time, or behind it.
    fn set(&self, seconds: i64) {
        let (new, clock) = (self.dir.path().join("new"), self.dir.path().join("clock"));
        fs::write(&new, format!("{seconds:+}")).expect("a new file");
        // In one step, so that the server never reads half of it.
        fs::rename(new, clock).expect("our own files");
    }

    fn seconds(&self) -> i64 {
        let (seconds, _): (i64, i64) = self.server.command(&["TIME"]);
        seconds
    }
}

/// `$LIBFAKETIME`, Debian's, or that of `scripts/redis`.
fn libfaketime() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/faketime/usr/lib");
    let directories = [Path::new("/usr/lib").to_owned(), target];
    let machines = directories.iter().filter_map(|it| fs::read_dir(it).ok());
    let machines = machines.flatten().flatten().map(|machine| machine.path());
    let brought = machines.map(|machine| machine.join("faketime/libfaketime.so.1"));
    let known = env::var_os("LIBFAKETIME").map(PathBuf::from);
    let mut all = known.into_iter().chain(brought);
    let missing = "there is no libfaketime: set LIBFAKETIME, or let `source scripts/redis && find_others` bring it";
    all.find(|place| place.exists()).expect(missing)
}

/// No window holds more than the quota allows, and no stall is longer than a rest, but for a busy machine.
async fn survives(changes: &[i64]) {
    let settable = Settable::start();
    let mut load = Load::new();
    for _ in 0..3 {
        load.add(&strict(&settable.server).await);
    }
    load.goes_on(LIMIT as usize * 3).await;
    let start = settable.seconds();
    for &seconds in changes {
        settable.set(seconds);
        let stall = load.goes_on(1).await;
        assert!(stall < REST + WINDOW + Duration::from_secs(3), "{stall:?}");
        load.goes_on(LIMIT as usize * 4).await;
    }
    assert!(
        (settable.seconds() - start - changes[changes.len() - 1]).abs() < 100,
        "it was set"
    );
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}

#[tokio::test]
async fn a_clock_that_is_set_back_by_an_hour() {
    survives(&[-3_600, -7_200]).await;
}

#[tokio::test]
async fn a_clock_that_is_set_forward() {
    survives(&[1, 3_600]).await;
}

/// Each key learns of it by its own calls.
#[tokio::test]
async fn a_clock_that_is_set_forward_while_several_keys_call() {
    let settable = Settable::start();
    let limiters = [
        strict(&settable.server).await,
        strict(&settable.server).await,
    ];
    let mut loads = ["a", "b", "c", "d"].map(Load::of);
    for load in &mut loads {
        limiters.iter().for_each(|limiter| load.add(limiter));
    }
    for seconds in [2, 3_600] {
        for load in &loads {
            load.goes_on(LIMIT as usize * 2).await;
        }
        settable.set(seconds);
    }
    for load in loads {
        load.goes_on(LIMIT as usize * 2).await;
        load.history().await.assert_at_most(LIMIT.into(), WINDOW);
    }
}

/// The clock was last read five seconds before it was set.
#[tokio::test]
async fn a_clock_that_is_set_forward_while_no_process_calls() {
    const LONG: Duration = Duration::from_secs(9);
    let settable = Settable::start();
    let store = RedisStore::connect(&settable.server.url()).await;
    let quota = Quota::new(LIMIT, LONG);
    let builder = Limiter::builder().quota(quota).recovery(Recovery::Strict);
    let builder = builder.store(store.expect("a connection"));
    let limiter = builder.build().expect("a valid policy");
    // The new server rests.
    for key in ["a", "b"] {
        limiter.acquire(key).await.expect("a permit");
    }
    let start = Instant::now();
    let departures = async |key: &str| {
        let mut departed = 0;
        for _ in 0..LIMIT {
            let decision = limiter.try_acquire(key).await.expect("an answer");
            departed += u32::from(decision.is_granted());
        }
        departed
    };
    for key in ["a", "b"] {
        assert!(departures(key).await >= LIMIT - 1);
    }
    sleep(Duration::from_secs(5)).await;
    settable.set(3_600);
    for key in ["a", "b"] {
        let departed = departures(key).await;
        assert!(start.elapsed() < LONG, "the machine is too slow for this");
        assert_eq!(departed, 0, "{key}");
    }
}

#[tokio::test]
async fn a_reset_ends_the_rest_of_a_key() {
    let server = RedisServer::start();
    let store = server.store().await;
    let builder = Limiter::builder().quota(Quota::per_hour(10));
    let builder = builder.recovery(Recovery::Strict).store(store);
    let limiter = builder.build().expect("a valid policy");
    let decision = limiter.try_acquire("a").await.expect("an answer");
    assert!(!decision.is_granted(), "a new server");
    limiter.reset("a").await.expect("it is reset");
    let decision = limiter.try_acquire("a").await.expect("an answer");
    assert!(decision.is_granted());
}

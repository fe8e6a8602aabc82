//! Strict recovery: a real server loses the state of keys, and no window holds more than the quota allows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use support::redis_server::redis_6_2;
use tempfile::TempDir;

use crate::prelude::*;
use crate::telemetry::seen::Seen;

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_millis(400);

async fn strict(server: &RedisServer) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.recovery(Recovery::Strict).max_wait(WINDOW * 2);
    build(builder.store(server.store().await))
}

/// Waits for the end of a quarantine, and departs once.
async fn after_quarantine(limiter: &Limiter) {
    eventually("the quarantine ends", async || {
        limiter.acquire("a").await.is_ok()
    })
    .await;
}

const CALLERS: usize = 8;

#[derive(Debug)]
struct Load {
    callers: JoinSet<()>,
    departed: Arc<Mutex<Vec<Instant>>>,
}

impl Load {
    fn of<'a>(key: &'static str, limiters: impl IntoIterator<Item = &'a Limiter>) -> Self {
        let (mut callers, departed) = (JoinSet::new(), Arc::<Mutex<Vec<_>>>::default());
        for limiter in limiters.into_iter().flat_map(|it| [it; CALLERS]) {
            let (limiter, departed) = (limiter.clone(), departed.clone());
            callers.spawn(async move {
                loop {
                    let Ok(permit) = limiter.acquire(key).await else {
                        sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    // Before the check, so that the departure is no later than this.
                    let at = Instant::now();
                    if permit.is_valid() {
                        departed.lock().expect("no panic").push(at);
                    } else {
                        permit.forfeit();
                    }
                }
            });
        }
        Self { callers, departed }
    }

    fn departures(&self) -> usize {
        self.departed.lock().expect("no panic").len()
    }

    /// Waits until so many more have departed; says how long that took.
    async fn goes_on(&self, departures: usize) -> Duration {
        let start = Instant::now();
        let enough = self.departures() + departures;
        eventually("enough depart", async || self.departures() >= enough).await;
        start.elapsed()
    }

    /// Ends it.
    async fn history(mut self) -> History {
        self.callers.shutdown().await;
        let departed = self.departed.lock().expect("no panic");
        departed.iter().copied().collect()
    }
}

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
        let status = install.arg(&text).arg(&wrapper).status();
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

/// Each key learns of it by its own calls. No window holds more than the quota allows, and no stall is longer than a
/// quarantine, but for a busy machine.
#[tokio::test]
async fn a_clock_that_is_set_forward_and_back() {
    let settable = Settable::start();
    let limiters = join_all([(); 3].map(|()| strict(&settable.server))).await;
    let loads = ["a", "b", "c", "d"].map(|key| Load::of(key, &limiters));
    let start = settable.seconds();
    for seconds in [1, 3_600, 0, -3_600] {
        join_all(loads.each_ref().map(|it| it.goes_on(LIMIT as usize * 3))).await;
        settable.set(seconds);
        for stall in join_all(loads.each_ref().map(|it| it.goes_on(1))).await {
            assert!(stall < WINDOW * 2 + 11 * SECOND, "{stall:?}");
        }
    }
    assert!((settable.seconds() - start + 3_600).abs() < 100, "not set");
    join_all(loads.each_ref().map(|it| it.goes_on(LIMIT as usize * 3))).await;
    for load in loads {
        load.history().await.assert_at_most(LIMIT.into(), WINDOW);
    }
}

#[tokio::test]
async fn a_store_that_was_never_used_is_in_quarantine_once() {
    let server = RedisServer::start();
    let limiter = strict(&server).await;
    let start = Instant::now();
    after_quarantine(&limiter).await;
    assert!(start.elapsed() >= WINDOW + SECOND);
    // Other keys and other processes are not in quarantine again.
    let another = strict(&server).await;
    attempt(&another, "b", 1).await.expect("no quarantine");
    let ttl: i64 = server.command(&["PTTL", "throttle:created"]);
    assert!(ttl > 0, "every key expires");
}

/// It has an old mark that says that it knows all calls, and another process has not seen what is lost.
#[tokio::test]
async fn a_server_that_restarts_with_an_old_snapshot() {
    let mut server = RedisServer::start();
    let limiter = strict(&server).await;
    after_quarantine(&limiter).await;
    server.command::<()>(&["SAVE"]);
    attempt(&limiter, "b", LIMIT).await.expect("no quarantine");
    server.restart();
    let another = strict(&server).await;
    let refused = attempt(&another, "b", 1).await;
    assert!(refused.expect_err("it is in quarantine").delay() > WINDOW);
}

/// Processes whose requests wait expect the state, though none of their own departures counts.
#[tokio::test]
async fn a_single_key_that_is_lost_while_requests_wait() {
    let (server, window) = (RedisServer::start(), Duration::from_millis(50));
    let spaced = Quota::new(1, window).algorithm(Algorithm::Spacing);
    // Without a bound: on a busy machine, a process whose requests all gave up would not know the state, and not notice its loss.
    let limiters = join_all([(); 3].map(async |()| {
        let builder = Limiter::builder().quota(spaced).recovery(Recovery::Strict);
        build(builder.store(server.store().await))
    }))
    .await;
    let load = Load::of("a", &limiters);
    for round in 0..7 {
        load.goes_on(7).await;
        sleep(window * round / 6).await;
        server.command::<()>(&["DEL", "throttle:{a}"]);
    }
    load.history().await.assert_at_most(1, window);
}

#[tokio::test]
async fn traffic_that_comes_and_goes_or_is_paused_is_no_loss() {
    let server = RedisServer::start();
    let limiters = [strict(&server).await, strict(&server).await];
    after_quarantine(&limiters[0]).await;
    let (seen, _guard) = Seen::begin();
    let start = Instant::now();
    let mut round = 0_u32;
    while start.elapsed() < 3 * SECOND {
        round += 1;
        let load = Load::of("a", &limiters);
        // Requests that are cancelled, and permits that are not used.
        let giving_up = limiters[0].acquire("a");
        let _ = timeout(Duration::from_millis(3), giving_up).await;
        if let Ok(permit) = limiters[1].acquire("a").await {
            permit.forfeit();
        }
        // A pause that ends by itself, or is ended.
        let lasts = WINDOW / 2 * [1, 200][round as usize % 2];
        let pause = limiters[1].pause("a", Instant::now() + lasts).await;
        pause.expect("a pause");
        sleep(WINDOW / 2).await;
        limiters[0].resume("a").await.expect("no pause");
        load.goes_on(LIMIT as usize).await;
        let quarantines = seen.told("a key is in quarantine, as the store has lost its state");
        assert!(quarantines.is_empty(), "round {round}: {quarantines:?}");
        load.history().await.assert_at_most(LIMIT.into(), WINDOW);
        if round.is_multiple_of(3) {
            sleep(WINDOW * 3).await;
        }
    }
}

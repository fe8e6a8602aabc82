//! The load: a process whose callers ask for permits again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

use crate::counted::Counted;
use crate::fault::Fault;
use crate::stage::{PATIENCE, Part};
use crate::table;
use crate::upstream::Way;
use support::child::{self, now};
use support::spend::build;
use support::tally::{Count, Tally};

/// At most so many of a key in any window, by all processes together.
pub(crate) const LIMIT: u64 = 10;
pub(crate) const WINDOW: Duration = Duration::from_millis(500);

/// For what lies between a departure and its arrival on a machine that does many other things: a departure
/// is further than a window and this from the one a limit before it.
pub(crate) const BUFFER: Duration = Duration::from_millis(200);

/// Keys that all processes share.
pub(crate) const KEYS: usize = 3;

/// For each key, in each process: so many that there always is a line, of more than a window.
pub(crate) const CALLERS: usize = 6;

/// One in so many callers has a bound on its wait.
const BOUNDED: usize = 3;
const BOUND: Duration = Duration::from_secs(3);

/// How long a request takes that has departed, as far as its caller can tell.
const TAKES: Duration = Duration::from_millis(20);

/// The pause of a caller that got an error.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the store waits for an answer, unless a fault says otherwise.
const TIMEOUT: Duration = Duration::from_millis(500);

/// State that the callers of a process share.
struct Load {
    limiter: Limiter,
    way: Way,
    tally: Arc<Tally>,
    stops: AtomicBool,
}

/// The runtime of a process that plays a part.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

/// Plays a part until the line `stop`, and sends its tally.
pub(crate) fn play(part: &Part) {
    runtime().block_on(async {
        let tally = Arc::new(Tally::default());
        let load = Arc::new(Load {
            limiter: limiter(table::find(&part.script), &part.redis, tally.clone()).await,
            way: Way::new(&part.upstream, part.number),
            tally,
            stops: AtomicBool::new(false),
        });
        let callers = (0..KEYS * CALLERS).map(|caller| {
            let load = load.clone();
            let bound = caller.is_multiple_of(BOUNDED).then_some(BOUND);
            tokio::spawn(async move { load.call(caller % KEYS, bound).await })
        });
        let callers: Vec<_> = callers.collect();
        let told = tokio::task::spawn_blocking(child::hear);
        assert_eq!(told.await.expect("a line"), "stop");
        load.stops.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        let callers = callers.into_iter().map(|it| timeout_at(deadline, it));
        for end in join_all(callers).await {
            match end {
                Ok(ended) => ended.expect("no panic"),
                Err(_) => load.tally.one(Count::Lost),
            }
        }
        child::say(child::text(&*load.tally));
    });
}

/// Connects as a fault says.
pub(crate) async fn connect(fault: &Fault, redis: &str) -> RedisStore {
    let deadline = Instant::now() + PATIENCE;
    let store = loop {
        match (fault.connect)(redis.to_owned()).await {
            Ok(store) => break store.timeout(TIMEOUT),
            // A second may be little on a machine that does many other things.
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
    };
    (fault.store)(store)
}

async fn limiter(fault: &Fault, redis: &str, tally: Arc<Tally>) -> Limiter {
    let limiter = Limiter::builder()
        .quota(Quota::new(LIMIT as u32, WINDOW))
        .buffer(BUFFER)
        .store(Counted::new(connect(fault, redis).await, tally));
    build((fault.limiter)(limiter))
}

impl Load {
    /// Asks for one permit after the other.
    async fn call(&self, key: usize, bound: Option<Duration>) {
        while !self.stops.load(Ordering::SeqCst) {
            self.tally.one(Count::Asked);
            let asked = Instant::now();
            let mut acquire = self.limiter.acquire(format!("key-{key}"));
            if let Some(bound) = bound {
                acquire = acquire.max_wait(bound);
            }
            let answer = acquire.await;
            let took = u64::try_from(asked.elapsed().as_micros()).expect("less than ages");
            self.tally.add(Count::Longest, took);
            let at = now();
            match answer {
                // It is certain now that it was valid then, however long this process was held up in between.
                Ok(permit) if permit.is_valid() => {
                    self.way.send(key, [0; 3], at);
                    self.tally.one(Count::Departed);
                    sleep(TAKES).await;
                }
                Ok(permit) => {
                    permit.forfeit();
                    self.tally.one(Count::Expired);
                }
                Err(error) => {
                    self.tally.one(Count::of_error(&error));
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

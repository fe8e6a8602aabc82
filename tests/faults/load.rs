//! The load: a process whose callers ask for permits again and again.

use std::sync::atomic::AtomicBool;

use crate::prelude::*;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::{Call, Nudge, Reply, Store, StoreError};

/// At most so many of a key in any window, by all processes together.
pub(crate) const LIMIT: u64 = 10;
pub(crate) const WINDOW: Duration = Duration::from_millis(500);

/// For what lies between a departure and its arrival on a machine that does many other things.
pub(crate) const BUFFER: Duration = Duration::from_millis(200);

pub(crate) const KEYS: usize = 3;

/// For each key, in each process: so many that a queue of more than a window always waits.
pub(crate) const CALLERS: usize = 6;

/// One in so many callers has a bound on its wait.
const BOUNDED: usize = 3;
const BOUND: Duration = Duration::from_secs(3);

/// How long a request takes that has departed, as far as its caller can tell.
const TAKES: Duration = Duration::from_millis(20);

const PAUSE: Duration = Duration::from_millis(50);

/// How long the store waits for an answer, unless a fault says otherwise.
const TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct Load {
    pub(crate) limiter: Limiter,
    pub(crate) tally: Arc<Tally>,
    sender: Sender,
    stops: AtomicBool,
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

/// Runs until the line `stop`, and sends its tally.
pub(crate) fn run_process(args: &Args) {
    runtime().block_on(async {
        let tally = Arc::new(Tally::default());
        let limiter = limiter(table::find(&args.script), &args.redis, tally.clone()).await;
        let load = Load::new(limiter, tally, args);
        let mut callers = JoinSet::new();
        for caller in 0..KEYS * CALLERS {
            let load = load.clone();
            let bound = caller.is_multiple_of(BOUNDED).then_some(BOUND);
            callers.spawn(async move { load.call(caller % KEYS, bound).await });
        }
        let told = tokio::task::spawn_blocking(child::receive);
        assert_eq!(told.await.expect("a line"), "stop");
        load.end(&mut callers).await;
        child::send(&*load.tally);
    });
}

pub(crate) async fn connect(fault: &Fault, redis: &str) -> RedisStore {
    // A second may be little on a machine that does many other things.
    let store = until_ok(async || (fault.connect)(redis.to_owned()).await).await;
    (fault.store)(store.timeout(TIMEOUT))
}

async fn limiter(fault: &Fault, redis: &str, tally: Arc<Tally>) -> Limiter {
    let store = connect(fault, redis).await;
    let limiter = Limiter::builder()
        .quota(Quota::new(LIMIT as u32, WINDOW))
        .buffer(BUFFER)
        .store(Counted { store, tally });
    build((fault.limiter)(limiter))
}

impl Load {
    pub(crate) fn new(limiter: Limiter, tally: Arc<Tally>, args: &Args) -> Arc<Self> {
        Arc::new(Self {
            limiter,
            tally,
            sender: Sender::new(&args.upstream, args.number),
            stops: AtomicBool::new(false),
        })
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.stops.load(Ordering::SeqCst)
    }

    pub(crate) fn begin(&self) {
        self.stops.store(false, Ordering::SeqCst);
    }

    /// Lets all callers end. A caller that does not end has lost a request.
    pub(crate) async fn end(&self, callers: &mut JoinSet<()>) {
        self.stops.store(true, Ordering::SeqCst);
        let ended = async {
            while let Some(ended) = callers.join_next().await {
                ended.expect("no panic");
            }
        };
        if timeout(TIME_LIMIT, ended).await.is_err() {
            self.tally.add(Count::Lost, callers.len() as u64);
            callers.shutdown().await;
        }
    }

    pub(crate) async fn call(&self, key: usize, bound: Option<Duration>) {
        while self.goes_on() {
            self.tally.one(Count::Asked);
            let asked = Instant::now();
            let mut acquire = self.limiter.acquire(format!("key-{key}"));
            if let Some(bound) = bound {
                acquire = acquire.max_wait(bound);
            }
            let answer = acquire.await;
            self.tally.took(asked.elapsed());
            let pause = match answer {
                Ok(permit) => {
                    self.depart(key, permit);
                    TAKES
                }
                Err(error) => {
                    self.tally.one(Count::of_error(&error));
                    PAUSE
                }
            };
            sleep(pause).await;
        }
    }

    pub(crate) fn depart(&self, key: usize, permit: Permit) {
        let at = now();
        // It is certain now that it was valid then, however long this process was held up in between.
        if permit.is_valid() {
            self.sender.send(key, permit.cost().into(), at);
            self.tally.one(Count::Departed);
        } else {
            permit.forfeit();
            self.tally.one(Count::Expired);
        }
    }
}

#[derive(Debug)]
struct Counted<S> {
    store: S,
    tally: Arc<Tally>,
}

impl<S: Store> Store for Counted<S> {
    fn call(&self, calls: Vec<Call>) -> Reply {
        self.tally.one(Count::Calls);
        let (reply, tally) = (self.store.call(calls), self.tally.clone());
        Box::pin(async move {
            let answer = reply.await;
            if answer.as_ref().is_err_and(StoreError::is_outcome_unknown) {
                tally.one(Count::LostCalls);
            }
            answer
        })
    }

    fn ping(&self, key: &Key) -> Reply {
        self.tally.one(Count::Calls);
        self.store.ping(key)
    }

    fn shard(&self, key: &Key) -> u64 {
        self.store.shard(key)
    }

    fn subscribe(&self, process: u64, subscriber: Box<dyn Fn(&Nudge) -> bool + Send + Sync>) {
        self.store.subscribe(process, subscriber);
    }

    fn is_subscribed(&self) -> bool {
        self.store.is_subscribed()
    }
}

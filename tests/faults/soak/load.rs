//! The load: a process that obeys lines.
//!
//! | line | what it does |
//! | --- | --- |
//! | `load NUMBER` | sets these quotas, and starts callers |
//! | `go on` | nothing |
//! | `rest` | stops them; says, once all is at rest, what is left |
//! | `stop` | says what came of all requests, and ends |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower_throttle::{Limiter, Recovery};

use super::caller::Caller;
use super::kept;
use crate::fault::Fault;
use crate::load::{connect, runtime};
use crate::stage::{PATIENCE, Part};
use crate::upstream::Way;
use support::child;
use support::spend::{build, under};
use support::tally::{Count, Tally};

/// The tasks of a subscription: one that reads messages, and one of its connection.
const SUBSCRIPTION: usize = 2;

/// All keys.
pub(crate) const ALL: usize = 10_000;

/// The first of them are hot: there always is a line for each, in each process.
pub(crate) const KEYS: usize = 4;

/// The number of callers without a bound, for each hot key in each process.
const PATIENT: usize = 5;

/// The number of callers with random keys and bounds.
const RESTLESS: usize = 20;

/// More than it takes to answer over a slow network, and less than a caller would wait.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a process may take until nothing is left of requests that have ended.
const SETTLING: Duration = Duration::from_secs(10);

/// State that the callers of a process share.
pub(crate) struct Load {
    pub(crate) limiter: Limiter,
    pub(crate) way: Arc<Way>,
    pub(crate) tally: Arc<Tally>,
    stops: AtomicBool,
}

impl Load {
    pub(crate) fn goes_on(&self) -> bool {
        !self.stops.load(Ordering::SeqCst)
    }
}

/// The report of a process at rest.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) lines: usize,
    pub(crate) is_out: bool,
    pub(crate) tasks: usize,
    /// How many there were before the first request.
    pub(crate) tasks_at_first: usize,
}

/// Plays a part until the line `stop`.
pub(crate) fn play(part: &Part) {
    let seed = part.script.parse().expect("a number");
    let mut process = Process::new(part, runtime(), seed);
    loop {
        let line = child::hear();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("go", _) => {}
            ("load", set) => process.start(set.parse().expect("a number")),
            ("rest", _) => {
                let rest = process.rest();
                child::say(child::text(&(rest, &*process.tally)));
            }
            ("stop", _) => return child::say(child::text(&*process.tally)),
            _ => panic!("what is {line:?}"),
        }
    }
}

struct Process {
    runtime: Runtime,
    limiter: Limiter,
    way: Arc<Way>,
    tally: Arc<Tally>,
    random: StdRng,
    load: Option<Arc<Load>>,
    callers: JoinSet<()>,
    tasks_at_first: usize,
}

impl Process {
    fn new(part: &Part, runtime: Runtime, seed: u64) -> Self {
        let store = runtime.block_on(connect(&Fault::PLAIN, &part.redis));
        // The limiter subscribes with its first call.
        let tasks_at_first = runtime.metrics().num_alive_tasks() + SUBSCRIPTION;
        let builder = under(kept::SETS[0]).recovery(Recovery::Strict);
        Self {
            runtime,
            limiter: build(builder.store(store.timeout(TIMEOUT))),
            way: Arc::new(Way::new(&part.upstream, part.number)),
            tally: Arc::default(),
            random: StdRng::seed_from_u64(seed + part.number as u64),
            load: None,
            callers: JoinSet::new(),
            tasks_at_first,
        }
    }

    fn start(&mut self, set: usize) {
        let set = self.limiter.set_quotas(kept::set(set));
        set.expect("valid quotas");
        let load = Arc::new(Load {
            limiter: self.limiter.clone(),
            way: self.way.clone(),
            tally: self.tally.clone(),
            stops: AtomicBool::new(false),
        });
        let mut caller = || Caller::new(load.clone(), self.random.random());
        let on = self.runtime.handle();
        for key in 0..KEYS {
            for _ in 0..PATIENT {
                self.callers.spawn_on(caller().ask_patiently(key), on);
            }
        }
        for _ in 0..RESTLESS {
            self.callers.spawn_on(caller().ask_restlessly(), on);
        }
        self.callers.spawn_on(caller().pause_and_resume(), on);
        self.load = Some(load);
    }

    fn rest(&mut self) -> Rest {
        if let Some(load) = self.load.take() {
            load.stops.store(true, Ordering::SeqCst);
        }
        let ended = async {
            while let Some(ended) = self.callers.join_next().await {
                ended.expect("no panic");
            }
        };
        let handle = self.runtime.handle().clone();
        if handle.block_on(async { timeout(PATIENCE, ended).await.is_err() }) {
            self.tally.add(Count::Lost, self.callers.len() as u64);
            handle.block_on(self.callers.shutdown());
        }
        let deadline = Instant::now() + SETTLING;
        loop {
            let rest = self.look(&handle);
            if rest.is_at_rest() || Instant::now() > deadline {
                return rest;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn look(&self, handle: &Handle) -> Rest {
        Rest {
            lines: self.limiter.queues(),
            is_out: self.limiter.health().is_out(),
            tasks: handle.metrics().num_alive_tasks(),
            tasks_at_first: self.tasks_at_first,
        }
    }
}

impl Rest {
    pub(crate) fn is_at_rest(self) -> bool {
        self.lines == 0 && self.tasks <= self.tasks_at_first
    }
}

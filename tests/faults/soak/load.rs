//! The load: a process that executes the lines that it receives.
//!
//! | line | what it does |
//! | --- | --- |
//! | `load NUMBER` | sets these quotas, and starts callers |
//! | `rest` | stops them; once all requests have ended, reports what is left |
//! | `stop` | reports the outcomes of all requests, and ends |

use serde::{Deserialize, Serialize};
use support::spend::under;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::{Decision, Error};

use super::departures;
use crate::load::{Load, connect, runtime};
use crate::prelude::*;

/// The tasks of a subscription: one that reads messages, and one of its connection.
const SUBSCRIPTION: usize = 2;

pub(crate) const ALL: usize = 10_000;

/// The first of them are hot: there always is a queue for each, in each process.
pub(crate) const KEYS: usize = 4;

/// The number of callers without a bound, for each hot key in each process.
const UNBOUNDED: usize = 5;

/// The number of callers with random keys and bounds.
const RANDOM: usize = 20;

/// More than it takes to answer over a slow network, and less than a caller would wait.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a process may take until nothing is left of requests that have ended.
const SETTLING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) queues: usize,
    pub(crate) is_out: bool,
    pub(crate) tasks: usize,
    /// How many there were before the first request.
    pub(crate) tasks_at_first: usize,
}

pub(crate) fn run_process(args: &Args) {
    let seed = args.script.parse().expect("a number");
    let mut process = Process::new(args, runtime(), seed);
    loop {
        let line = child::receive();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("load", set) => process.start(set.parse().expect("a number")),
            ("rest", _) => {
                let rest = process.rest();
                child::send(&(rest, &*process.load.tally));
            }
            ("stop", _) => return child::send(&*process.load.tally),
            _ => panic!("what is {line:?}"),
        }
    }
}

struct Process {
    runtime: Runtime,
    load: Arc<Load>,
    random: StdRng,
    callers: JoinSet<()>,
    tasks_at_first: usize,
}

impl Process {
    fn new(args: &Args, runtime: Runtime, seed: u64) -> Self {
        let store = runtime.block_on(connect(&Fault::PLAIN, &args.redis));
        // The limiter subscribes with its first call.
        let tasks_at_first = runtime.metrics().num_alive_tasks() + SUBSCRIPTION;
        let builder = under(departures::SETS[0]).recovery(Recovery::Strict);
        let limiter = build(builder.store(store.timeout(TIMEOUT)));
        Self {
            runtime,
            load: Load::new(limiter, Arc::default(), args),
            random: StdRng::seed_from_u64(seed + args.number as u64),
            callers: JoinSet::new(),
            tasks_at_first,
        }
    }

    fn start(&mut self, set: usize) {
        let set = self.load.limiter.set_quotas(departures::set(set));
        set.expect("valid quotas");
        self.load.begin();
        let on = self.runtime.handle();
        for caller in 0..KEYS * UNBOUNDED {
            let load = self.load.clone();
            let call = async move { load.call(caller % KEYS, None).await };
            self.callers.spawn_on(call, on);
        }
        let mut caller = || Caller {
            load: self.load.clone(),
            random: StdRng::seed_from_u64(self.random.random()),
        };
        for _ in 0..RANDOM {
            self.callers.spawn_on(caller().ask_at_random(), on);
        }
        self.callers.spawn_on(caller().pause_and_resume(), on);
    }

    fn rest(&mut self) -> Rest {
        let handle = self.runtime.handle().clone();
        handle.block_on(self.load.end(&mut self.callers));
        let deadline = Instant::now() + SETTLING;
        loop {
            let rest = Rest {
                queues: self.load.limiter.queues(),
                is_out: self.load.limiter.health().is_out(),
                tasks: handle.metrics().num_alive_tasks(),
                tasks_at_first: self.tasks_at_first,
            };
            if rest.is_at_rest() || Instant::now() > deadline {
                return rest;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Rest {
    pub(crate) fn is_at_rest(self) -> bool {
        self.queues == 0 && self.tasks <= self.tasks_at_first
    }
}

const MS: Duration = Duration::from_millis(1);

/// One of many in a process, each with chances of its own.
pub(crate) struct Caller {
    load: Arc<Load>,
    random: StdRng,
}

impl Caller {
    pub(crate) async fn ask_at_random(mut self) {
        while self.load.goes_on() {
            let key = self.key();
            self.count(Count::Asked);
            if self.random.random_bool(0.3) {
                self.try_once(key).await;
            } else {
                self.wait_for(key).await;
            }
            let pause = MS * self.random.random_range(0..60);
            sleep(pause).await;
        }
    }

    /// Lets nothing depart for a key at times.
    pub(crate) async fn pause_and_resume(mut self) {
        while self.load.goes_on() {
            let key = match self.random.random_bool(0.5) {
                true => name(self.random.random_range(0..KEYS)),
                false => name(self.key()),
            };
            let span = MS * self.random.random_range(50..1_200);
            let until = Instant::now() + span;
            // It fails while the store is out.
            let _ = self.load.limiter.pause(&*key, until).await;
            if self.random.random_bool(0.5) {
                sleep(span.mul_f64(self.random.random())).await;
                let _ = self.load.limiter.resume(&*key).await;
            }
            let pause = MS * self.random.random_range(200..1_500);
            sleep(pause).await;
        }
    }

    async fn try_once(&mut self, key: usize) {
        let asked = self.load.limiter.acquire(name(key)).cost(self.cost()).now();
        match asked.await {
            Ok(Decision::Granted(permit)) => self.use_or_not(permit, key),
            Ok(Decision::Limited(_)) => self.count(Count::Refused),
            Err(error) => self.count(Count::of_error(&error)),
        }
    }

    async fn wait_for(&mut self, key: usize) {
        let mut asked = self.load.limiter.acquire(name(key)).cost(self.cost());
        let bound = MS * self.random.random_range(0..3_000);
        asked = match self.random.random_range(0..4) {
            0 => asked,
            1 => asked.deadline(Instant::now() + bound),
            _ => asked.max_wait(bound),
        };
        if self.random.random_bool(0.3) {
            // From before it is polled to long after.
            let until_dropped = match self.random.random_range(0..4) {
                0 => Duration::ZERO,
                1 => MS * self.random.random_range(0..5),
                _ => MS * self.random.random_range(0..800),
            };
            if until_dropped.is_zero() && self.random.random_bool(0.3) {
                return self.count(Count::Dropped);
            }
            match timeout(until_dropped, asked).await {
                Ok(answer) => self.answered(answer, key),
                Err(_) => self.count(Count::Dropped),
            }
        } else {
            self.answered(asked.await, key);
        }
    }

    fn answered(&mut self, answer: Result<Permit, Error>, key: usize) {
        match answer {
            Ok(permit) => self.use_or_not(permit, key),
            Err(error) => self.count(Count::of_error(&error)),
        }
    }

    fn use_or_not(&mut self, permit: Permit, key: usize) {
        if self.random.random_bool(0.1) {
            permit.forfeit();
            self.count(Count::Forfeited);
        } else {
            self.load.depart(key, permit);
        }
    }

    /// A hot one at times, and of the others those more often that come first.
    fn key(&mut self) -> usize {
        if self.random.random_bool(0.03) {
            return self.random.random_range(0..KEYS);
        }
        let place: f64 = self.random.random();
        KEYS + (place * place * (ALL - KEYS) as f64) as usize
    }

    fn cost(&mut self) -> u32 {
        match self.random.random_bool(0.8) {
            true => 1,
            false => self.random.random_range(2..=4),
        }
    }

    fn count(&self, count: Count) {
        self.load.tally.one(count);
    }
}

fn name(key: usize) -> String {
    format!("key-{key}")
}

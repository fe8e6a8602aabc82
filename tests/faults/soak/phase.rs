//! [`Phases`]: load, while things befall at random, and then rest: what is left, and the judgment of what has departed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use support::child::now;
use support::errors::panic_text;
use support::tally::{Count, Tally};
use support::{child, keyspace};

use super::kept::{Kept, LONGEST, SETS};
use super::load::Rest;
use super::memory::{LONG, Series, resident};
use crate::stage::{PATIENCE, PROCESSES, Stage};
use crate::table;

const MS: Duration = Duration::from_millis(1);

/// It puts a new process in the place of the first.
const REPLACED: &str = "one of three killed";

const DEMOTED: &str = "READONLY";
const PROMOTED: &str = "promoted replica";

/// Makes all as it was before, once the fault is put right.
fn afterwards(name: &str, stage: &mut Stage) {
    if name == PROMOTED {
        // The other way round, from then on.
        stage.servers.swap(0, 1);
        stage.servers[1].restart();
    }
    if name == PROMOTED || name == DEMOTED {
        stage.replicate(1, 0);
    }
    for thread in stage.beside.drain(..) {
        thread.join().expect("no panic beside the load");
    }
}

/// The state of a run, and its figures.
pub(crate) struct Phases {
    befalls: Vec<&'static str>,
    pub(crate) stage: Stage,
    random: StdRng,
    pub(crate) kept: Kept,
    /// The quotas of this phase.
    pub(crate) set: usize,
    pub(crate) count: usize,
    befell: BTreeMap<&'static str, u64>,
    /// The memory of each process, by its number, and of the server.
    memory: BTreeMap<String, Series>,
    /// The actions of this phase, with their times.
    log: Vec<(Duration, String)>,
    /// When the memory of the processes and of the server was looked at last.
    sampled: [Instant; 2],
}

impl Phases {
    pub(crate) fn new(befalls: Vec<&'static str>, stage: Stage, seed: u64) -> Self {
        Self {
            befalls,
            stage,
            random: StdRng::seed_from_u64(seed),
            kept: Kept::default(),
            set: 0,
            count: 0,
            befell: BTreeMap::new(),
            memory: BTreeMap::new(),
            log: Vec::new(),
            sampled: [Instant::now(); 2],
        }
    }

    /// Load, and rest; what should not have been.
    pub(crate) fn next(&mut self, lasts: Duration) -> Vec<String> {
        self.set = self.count % SETS.len();
        self.log.clear();
        self.count += 1;
        let load = self.load();
        self.note(&load);
        self.tell(&load);
        self.settle();
        let end = Instant::now() + lasts;
        loop {
            self.befall();
            if Instant::now() > end {
                break self.rest();
            }
        }
    }

    fn load(&self) -> String {
        format!("load {}", self.set)
    }

    fn befall(&mut self) {
        let name = *self.befalls.choose(&mut self.random).expect("a fault");
        let fault = table::find(name);
        self.note(name);
        (fault.inject)(&mut self.stage);
        let lasts = MS * self.random.random_range(100..2_500);
        self.collect(lasts);
        self.note("... it is put right");
        (fault.heal)(&mut self.stage);
        self.note("... that is done");
        afterwards(name, &mut self.stage);
        let load = self.load();
        for process in self.stage.processes.iter_mut().flatten() {
            // A process waits for a line only for a minute, and a new one for its load.
            let is_new = name == REPLACED && process.number + 1 == self.stage.numbers;
            process.child.tell(if is_new { &load } else { "go on" });
        }
        *self.befell.entry(name).or_default() += 1;
        self.settle();
    }

    /// Until each process departs for each hot key.
    fn settle(&mut self) {
        let (since, deadline) = (now(), Instant::now() + PATIENCE);
        loop {
            self.pass(MS * 20);
            let mut living = self.stage.living().into_iter();
            if living.all(|it| self.kept.has_departed(it, since)) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not all processes depart within {PATIENCE:?}, of {:?}",
                SETS[self.set]
            );
        }
    }

    /// Lets time pass while the server is well.
    fn pass(&mut self, span: Duration) {
        if is_time(&mut self.sampled[1]) {
            let used = self.stage.servers[0].used_memory();
            let series = self.memory.entry("the server".to_owned());
            series.or_default().push(used);
        }
        self.collect(span);
    }

    /// Lets time pass, and takes what has departed.
    pub(crate) fn collect(&mut self, span: Duration) {
        let end = Instant::now() + span;
        loop {
            if is_time(&mut self.sampled[0]) {
                for process in self.stage.processes.iter().flatten() {
                    let resident = resident(process.child.pid()).expect("it runs, on Linux");
                    let series = self.memory.entry(format!("process {}", process.number));
                    series.or_default().push(resident);
                }
            }
            self.kept.depart(self.stage.upstream().take());
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(MS * 50));
        }
    }

    /// What is wrong with the memory of a run of this length: it grows, or has too few samples.
    pub(crate) fn growth(&self, took: Duration) -> Vec<String> {
        let judged = self.memory.values().filter(|it| it.medians().is_some());
        let judged = judged.count();
        if took >= LONG && judged < PROCESSES {
            return vec![format!("the memory of {judged} processes was judged")];
        }
        let growing = self.memory.iter().filter(|(_, series)| series.grows());
        growing
            .map(|(whose, series)| format!("the memory of {whose} grows: {series}"))
            .collect()
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.log.push((now(), what.to_owned()));
    }

    /// The actions of this phase.
    pub(crate) fn told(&self) -> String {
        let lines = self.log.iter();
        lines
            .map(|(at, what)| format!("{at:.3?} {what}\n"))
            .collect()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        for process in self.stage.processes.iter_mut().flatten() {
            process.child.tell(line);
        }
    }
}

/// Whether a second has passed; if so, another begins.
fn is_time(sampled: &mut Instant) -> bool {
    let is_time = sampled.elapsed() >= Duration::from_secs(1);
    if is_time {
        *sampled = Instant::now();
    }
    is_time
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} phases", self.count)?;
        for (name, count) in &self.befell {
            writeln!(f, "{name}: {count}")?;
        }
        for (whose, series) in &self.memory {
            writeln!(f, "memory of {whose}: {series}")?;
        }
        Ok(())
    }
}

/// How long a process may take until it is at rest.
const RESTING: Duration = Duration::from_secs(50);

/// How long the last command for a key is remembered.
const COMMANDED: Duration = Duration::from_secs(60);

/// The mark that strict recovery keeps.
const CREATED: &str = "throttle:created";

impl Phases {
    /// Stops the load, and looks for what is left.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        self.note("rest");
        self.tell("rest");
        for place in 0..PROCESSES {
            let Some(process) = &self.stage.processes[place] else {
                continue;
            };
            let line = process.child.next_line(RESTING);
            let (number, (rest, tally)) = (process.number, child::parse::<(Rest, Tally)>(&line));
            if !rest.is_at_rest() || rest.is_out {
                complaints.push(format!("process {number} is not at rest: {rest:?}"));
            }
            self.wait_for(number, tally.of(Count::Departed));
            complaints.extend(tally.accounts(number, self.kept.count(number)));
        }
        complaints.extend(self.kept.judge(self.set));
        let expire = || keyspace::assert_all_expire(&self.stage.servers[0]);
        complaints.extend(catch_unwind(AssertUnwindSafe(expire)).err().map(panic_text));
        if complaints.is_empty() {
            complaints.extend(self.outlives());
        }
        complaints
    }

    /// Requests may still be on their way.
    fn wait_for(&mut self, number: usize, departed: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.kept.count(number) < departed && Instant::now() < deadline {
            self.collect(MS * 5);
        }
    }

    /// No key is kept for longer than its departures count, or the last command for it, and a quarter of that.
    fn outlives(&self) -> Option<String> {
        let server = &self.stage.servers[0];
        let names = keyspace::names(server).into_iter();
        let lifetimes = names.filter(|name| *name != CREATED).map(|name| {
            let millis: i64 = server.command(&["PTTL", &name]);
            (Duration::from_millis(millis.unsigned_abs()), name)
        });
        let (longest, name) = lifetimes.max()?;
        (longest > (3 * LONGEST + COMMANDED) * 5 / 4)
            .then(|| format!("a key is kept for {longest:?}: {name}"))
    }
}

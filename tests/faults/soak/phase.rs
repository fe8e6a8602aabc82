//! [`Phases`]: load, while things befall at random, and then [rest](super::rest).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::befalls::{Befalls, Loses, REPLACED};
use super::kept::{Kept, Loss};
use super::memory::{Series, resident};
use super::mischief::Mischief;
use super::quotas::SETS;
use super::run::Plan;
use crate::stage::{PATIENCE, Stage};
use support::child::now;

const MS: Duration = Duration::from_millis(1);

/// The state of a run, and its figures.
pub(crate) struct Phases<'a> {
    plan: &'a Plan,
    pub(crate) stage: Stage,
    random: StdRng,
    pub(crate) kept: Kept,
    set: usize,
    is_strict: bool,
    pub(crate) count: usize,
    pub(crate) befell: BTreeMap<&'static str, u64>,
    pub(crate) changes: u64,
    /// The memory of each process, by its number, and of the server.
    pub(crate) memory: BTreeMap<usize, Series>,
    pub(crate) server: Series,
    /// The longest that keys stayed once all was at rest.
    pub(crate) stayed: Duration,
    /// The actions of this phase, with their times.
    log: Vec<(Duration, String)>,
    /// When the memory of the processes and of the server was looked at last.
    sampled: [Instant; 2],
}

impl<'a> Phases<'a> {
    pub(crate) fn new(plan: &'a Plan, stage: Stage, random: StdRng) -> Self {
        Self {
            plan,
            stage,
            random,
            kept: Kept::default(),
            set: 0,
            is_strict: false,
            count: 0,
            befell: BTreeMap::new(),
            changes: 0,
            memory: BTreeMap::new(),
            server: Series::default(),
            stayed: Duration::ZERO,
            log: Vec::new(),
            sampled: [Instant::now(); 2],
        }
    }

    /// Load, and rest; what should not have been.
    pub(crate) fn next(&mut self) -> Vec<String> {
        self.is_strict = self.count % 2 == 1;
        self.log.clear();
        self.count += 1;
        self.change_quotas(self.set);
        let load = self.load();
        self.note(&load);
        self.tell(&load);
        self.settle();
        let end = Instant::now() + self.plan.phase;
        loop {
            self.step();
            if Instant::now() > end {
                break self.rest();
            }
        }
    }

    fn load(&self) -> String {
        let recovery = if self.is_strict {
            "strict"
        } else {
            "immediate"
        };
        format!("load {recovery}")
    }

    fn step(&mut self) {
        // Sent in any case, as processes wait for a line only for a minute.
        let set = match self.random.random_bool(0.4) && !self.plan.befalls.is_empty() {
            true => self.random.random_range(0..SETS.len()),
            false => self.set,
        };
        self.change_quotas(set);
        if self.plan.mischief.contains(&Mischief::Forgets) {
            self.stage.server().command::<()>(&["FLUSHALL"]);
        }
        if self.plan.mischief.contains(&Mischief::Litters) {
            let words = ["SET", "throttle:{litter}", "x"];
            self.stage.server().command::<()>(&words);
        }
        match self.plan.befalls.choose(&mut self.random).copied() {
            Some(befalls) => self.befall(befalls),
            None => self.pass(MS * 500),
        }
        self.settle();
    }

    fn befall(&mut self, befalls: Befalls) {
        let fault = befalls.fault();
        let from = self.note(befalls.name);
        (fault.inject)(&mut self.stage);
        let lasts = MS * self.random.random_range(100..2_500);
        self.collect(lasts);
        self.note("... it is put right");
        (fault.heal)(&mut self.stage);
        let to = self.note("... that is done");
        (befalls.afterwards)(&mut self.stage);
        for thread in self.stage.beside.drain(..) {
            thread.join().expect("no panic beside the load");
        }
        if befalls.name == REPLACED {
            let lines = [format!("quotas {}", self.set), self.load()];
            let newcomer = self.stage.processes[0].as_mut().expect("it was started");
            lines.iter().for_each(|line| newcomer.child.tell(line));
        }
        if befalls.loses != Loses::Nothing {
            let counted = self.stage.losses.swap(0, Ordering::SeqCst) as u64;
            self.kept.lose(Loss {
                from,
                to,
                loses: befalls.loses,
                times: counted.max(1),
                set: self.set,
                former: self.set,
            });
        }
        *self.befell.entry(befalls.name).or_default() += 1;
    }

    fn change_quotas(&mut self, set: usize) {
        if set != self.set {
            self.changes += 1;
            self.note(&format!("quotas {:?}", SETS[set]));
        }
        let (from, former) = (now(), self.set);
        self.set = set;
        self.tell(&format!("quotas {set}"));
        if set != former {
            self.settle();
            self.kept.lose(Loss {
                from,
                to: now(),
                loses: Loses::Quotas,
                times: 1,
                set,
                former,
            });
        }
    }

    /// Until each process departs for each hot key, under the quotas that are set now.
    fn settle(&mut self) {
        let (since, deadline) = (now(), Instant::now() + PATIENCE);
        loop {
            self.pass(MS * 20);
            let numbers = self.stage.processes.iter().flatten().map(|it| it.number);
            let mut settled =
                numbers.map(|it| self.kept.has_departed(it, self.set, self.is_strict, since));
            if settled.all(|it| it) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not all processes depart within {PATIENCE:?}, of {:?}, strict: {}",
                SETS[self.set],
                self.is_strict
            );
        }
    }

    /// Lets time pass while the server is well.
    pub(crate) fn pass(&mut self, span: Duration) {
        if is_time(&mut self.sampled[1]) {
            self.server.push(self.stage.servers[0].used_memory());
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
                    self.memory
                        .entry(process.number)
                        .or_default()
                        .push(resident);
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

    pub(crate) fn note(&mut self, what: &str) -> Duration {
        let at = now();
        self.log.push((at, what.to_owned()));
        at
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

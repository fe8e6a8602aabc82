//! [`Phases`]: load with random faults, and then none: what is left, and whether what has departed keeps to the bounds.

use std::fs;

use rand::seq::IndexedRandom as _;

use super::departures::{Departures, SETS};
use super::load::Rest;
use crate::prelude::*;

const MS: Duration = Duration::from_millis(1);

pub(crate) struct Phases {
    faults: Vec<&'static str>,
    pub(crate) setup: Setup,
    random: StdRng,
    pub(crate) departures: Departures,
    pub(crate) set: usize,
    pub(crate) count: usize,
    /// The memory of each process, by its number.
    memory: BTreeMap<usize, Vec<u64>>,
    sampled: Instant,
}

impl Phases {
    pub(crate) fn new(faults: Vec<&'static str>, setup: Setup, seed: u64) -> Self {
        Self {
            faults,
            setup,
            random: StdRng::seed_from_u64(seed),
            departures: Departures::default(),
            set: 0,
            count: 0,
            memory: BTreeMap::new(),
            sampled: Instant::now(),
        }
    }

    pub(crate) fn next(&mut self, lasts: Duration) {
        self.set = self.count % SETS.len();
        self.count += 1;
        let load = self.load();
        note(&load);
        self.send_all(&load);
        self.settle();
        let end = Instant::now() + lasts;
        while Instant::now() <= end {
            self.apply_fault();
        }
        self.rest();
    }

    fn load(&self) -> String {
        format!("load {}", self.set)
    }

    fn apply_fault(&mut self) {
        let name = *self.faults.choose(&mut self.random).expect("a fault");
        let fault = table::find(name);
        note(name);
        (fault.inject)(&mut self.setup);
        let lasts = MS * self.random.random_range(100..2_500);
        self.collect(lasts);
        note("... it is put right");
        (fault.heal)(&mut self.setup);
        note("... that is done");
        self.restore(name);
        self.settle();
    }

    /// Makes all as it was before, once the fault is put right.
    fn restore(&mut self, name: &str) {
        let (load, setup) = (self.load(), &mut self.setup);
        match name {
            "one of three killed" => setup.processes[0]
                .iter_mut()
                .for_each(|it| it.child.send(&load)),
            "promoted replica" => {
                // The other way round, from then on.
                setup.servers.swap(0, 1);
                setup.servers[1].restart();
                setup.replicate(1, 0);
            }
            "READONLY" => setup.replicate(1, 0),
            _ => {}
        }
        setup.join_threads();
    }

    /// Until each process departs for each hot key.
    fn settle(&mut self) {
        let (since, deadline) = (now(), Instant::now() + TIME_LIMIT);
        loop {
            self.collect(MS * 20);
            let mut running = self.setup.running().into_iter();
            if running.all(|it| self.departures.has_departed(it, since)) {
                return;
            }
            let quotas = SETS[self.set];
            assert!(Instant::now() < deadline, "not all depart, of {quotas:?}");
        }
    }

    /// Lets time pass, and takes what has departed.
    pub(crate) fn collect(&mut self, span: Duration) {
        let end = Instant::now() + span;
        loop {
            if self.sampled.elapsed() >= Duration::from_secs(1) {
                self.sampled = Instant::now();
                for process in self.setup.processes.iter().flatten() {
                    let samples = self.memory.entry(process.number).or_default();
                    samples.push(resident(process.child.pid()));
                }
            }
            self.departures.depart(self.setup.upstream.take());
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(MS * 50));
        }
    }

    /// After a run of this length. A long one has enough samples of all processes but the first, replaced at random.
    pub(crate) fn assert_no_growth(&self, took: Duration) {
        let medians: Vec<_> = self.memory.values().filter_map(|it| medians(it)).collect();
        println!("bytes of processes in the second quarter and in the last: {medians:?}");
        assert!(took < LONG || medians.len() >= PROCESSES - 1);
        let grows = |[early, late]: [u64; 2]| late > early + early / 10 + SLACK;
        assert!(!medians.into_iter().any(grows));
    }

    pub(crate) fn send_all(&mut self, line: &str) {
        for process in self.setup.processes.iter_mut().flatten() {
            process.child.send(line);
        }
    }
}

fn note(what: &str) {
    println!("{:.3?} {what}", now());
}

/// How long a process may take until it is at rest.
const RESTING: Duration = Duration::from_secs(50);

impl Phases {
    /// Stops the load, and looks for what is left.
    fn rest(&mut self) {
        note("rest");
        self.send_all("rest");
        for place in 0..PROCESSES {
            let Some(process) = &self.setup.processes[place] else {
                continue;
            };
            let (rest, tally): (Rest, Tally) = process.child.next(RESTING);
            let number = process.number;
            let is_at_rest = rest.is_at_rest() && !rest.is_out;
            assert!(is_at_rest, "process {number} is not at rest: {rest:?}");
            // Requests may not have arrived yet.
            let (departed, deadline) = (tally.of(Count::Departed), Instant::now() + TIME_LIMIT);
            while self.departures.count(number) < departed && Instant::now() < deadline {
                self.collect(MS * 5);
            }
            tally.assert_accounts(number, self.departures.count(number));
        }
        assert_eq!(self.departures.judge(self.set), [""; 0]);
        // In one step, so that no key expires in between.
        let everlasting = "local found = {}
          for _, key in ipairs(redis.call('KEYS', '*')) do
            local left = redis.call('PTTL', key)
            if left < 0 then found[#found + 1] = key .. ' ' .. left end
          end
          return found";
        let found: Vec<String> = self.setup.server().command(&["EVAL", everlasting, "0"]);
        assert!(found.is_empty(), "without an expiry: {found:?}");
    }
}

/// The least number of samples, one per second, that show growth: half of them are from the beginning.
const LEAST: usize = 120;

/// A run of this length has enough samples of each process that lives through it.
const LONG: Duration = Duration::from_secs(240);

/// The median of the last quarter may exceed that of the second by a tenth and this, for the allocator.
const SLACK: u64 = 4 << 20;

/// The medians of the second quarter and of the last; `None` where there is too little.
fn medians(samples: &[u64]) -> Option<[u64; 2]> {
    let quarter = samples.len() / 4;
    let median = |from: usize| {
        let mut samples = samples[from * quarter..(from + 1) * quarter].to_vec();
        samples.sort_unstable();
        samples[quarter / 2]
    };
    (samples.len() >= LEAST).then(|| [1, 3].map(median))
}

/// The resident memory of a process on Linux, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs, on Linux");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.expect("kilobytes").parse::<u64>();
    kilobytes.expect("a number") << 10
}

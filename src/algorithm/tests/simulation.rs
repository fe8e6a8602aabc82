//! A simulation in virtual time: processes with round trips and failures share one [`State`].
//!
//! A request departs at a random moment at which its process can prove that it may, and otherwise waits again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::{Counter, Grant, Settlement, State, Take, Taken};

mod events;

/// The start of every simulation, on the store's clock.
pub(super) const START: u64 = 1_760_000_000_000_000;
pub(super) const MILLI: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000_000;

/// A simulation: what arrives, and what fails. Times count from the start.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) quotas: Vec<Counter>,
    /// The arrival and the cost of the requests of each process.
    pub(super) arrivals: Vec<Vec<(u64, u32)>>,
    pub(super) round_trips: Vec<u64>,
    /// The least guard.
    pub(super) floor: u64,
    pub(super) buffer: u64,
    /// The share of calls that are lost, half of them on the way back.
    pub(super) lost: f64,
    pub(super) timeout: u64,
    /// The mean delay of a departure, and the share of departures at any moment that the guard allows.
    pub(super) wake: f64,
    pub(super) random: f64,
    /// At a time, a process stops for so long.
    pub(super) stop: Option<(u64, usize, u64)>,
    pub(super) kill: Vec<(u64, usize)>,
    /// At a time, the requests of a process are cancelled but for so many.
    pub(super) cancel: Option<(u64, usize, usize)>,
    /// The quotas change for calls from this time on.
    pub(super) change: Option<(u64, Vec<Counter>)>,
    pub(super) until: u64,
    pub(super) seed: u64,
}

/// A request that departed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Departed {
    pub(super) at: u64,
    /// When it arrived upstream: later by up to the buffer.
    pub(super) upstream: u64,
    pub(super) arrival: u64,
    pub(super) cost: u32,
    pub(super) process: usize,
    pub(super) serial: usize,
}

/// The result of a simulation. The departures are in order.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) departed: Vec<Departed>,
    pub(super) calls: usize,
    pub(super) forfeits: usize,
    /// The least guard of a process at the end.
    pub(super) guard: u64,
    /// The processes that were overdue, and the start and the end of each such span.
    pub(super) overdue: Vec<(usize, u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Request {
    arrival: u64,
    cost: u32,
    serial: usize,
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(Request),
    Call(u64),
    Store(Box<Sent>),
    Answer(Box<Sent>, Box<Taken>),
    Timeout(u64),
    Depart(Request, Grant, u64),
    Settle(Settlement),
    Stop(u64),
    Wake,
    Kill,
    Cancel(usize),
}

#[derive(Debug, Clone)]
struct Sent {
    take: Take,
    sent: u64,
    up: u64,
    received: u64,
    requests: Vec<Request>,
}

#[derive(Default)]
struct Process {
    waiting: VecDeque<Request>,
    is_calling: bool,
    due: Option<u64>,
    token: u64,
    number: u64,
    lost: u64,
    wanted: u64,
    up: u64,
    down: u64,
    round_trip: u64,
    is_stopped: bool,
    is_dead: bool,
    held: Vec<Event>,
}

struct Simulation<'a> {
    setup: &'a Setup,
    rng: StdRng,
    events: BinaryHeap<Reverse<(u64, usize, usize)>>,
    details: Vec<Option<Event>>,
    processes: Vec<Process>,
    state: State,
    out: Outcome,
}

impl Setup {
    pub(super) fn new(quotas: Vec<Counter>, arrivals: Vec<Vec<(u64, u32)>>) -> Self {
        let shortest = quotas.iter().map(|quota| match quota {
            Counter::Window(it) => it.window,
            Counter::Fixed(it) => it.window,
            Counter::Gcra(it) if it.spaced => it.interval,
            Counter::Gcra(it) => it.interval * u64::from(it.burst),
        });
        let floor = (shortest.min().unwrap_or(0) / 50).clamp(5 * MILLI, 12 * MILLI);
        Self {
            quotas,
            round_trips: vec![MILLI; arrivals.len()],
            arrivals,
            floor,
            buffer: 0,
            lost: 0.0,
            timeout: SECOND,
            wake: 300.0,
            random: 0.01,
            stop: None,
            kill: Vec::new(),
            cancel: None,
            change: None,
            until: 3_600 * SECOND,
            seed: 1,
        }
    }

    pub(super) fn round_trip(mut self, round_trip: u64) -> Self {
        self.round_trips.fill(round_trip);
        self
    }

    pub(super) fn run(&self) -> Outcome {
        let mut simulation = Simulation {
            setup: self,
            rng: StdRng::seed_from_u64(self.seed),
            events: BinaryHeap::new(),
            details: Vec::new(),
            processes: Vec::new(),
            state: State::new(&self.quotas),
            out: Outcome::default(),
        };
        simulation.prepare();
        simulation.run();
        simulation.out
    }
}

impl Simulation<'_> {
    fn prepare(&mut self) {
        let setup = self.setup;
        let mut serial = 0;
        for (process, arrivals) in setup.arrivals.iter().enumerate() {
            let leg = setup.round_trips[process] * 23 / 40;
            self.processes.push(Process {
                up: leg,
                down: leg,
                round_trip: 2 * leg,
                ..Process::default()
            });
            for &(time, cost) in arrivals {
                serial += 1;
                let arrival = START + time;
                let request = Request {
                    arrival,
                    cost,
                    serial,
                };
                self.add(arrival, process, Event::Arrive(request));
            }
        }
        if let Some((time, process, span)) = setup.stop {
            self.add(START + time, process, Event::Stop(span));
        }
        for &(time, process) in &setup.kill {
            self.add(START + time, process, Event::Kill);
        }
        if let Some((time, process, keep)) = setup.cancel {
            self.add(START + time, process, Event::Cancel(keep));
        }
    }

    fn add(&mut self, time: u64, process: usize, event: Event) {
        let place = self.details.len();
        self.events.push(Reverse((time, place, process)));
        self.details.push(Some(event));
    }

    fn leg(&mut self, process: usize) -> u64 {
        let base = self.setup.round_trips[process] as f64 / 2.0;
        (base * (1.0 + self.exponential(0.3))) as u64 + 1
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.rng.random::<f64>()).ln()
    }

    fn plan(&mut self, process: usize, at: u64, now: u64) {
        let it = &mut self.processes[process];
        it.token += 1;
        let (at, token) = (at.max(now), it.token);
        it.due = Some(at);
        self.add(at, process, Event::Call(token));
    }

    fn run(&mut self) {
        while let Some(Reverse((now, place, process))) = self.events.pop() {
            if now > START + self.setup.until {
                break;
            }
            let event = self.details[place].take().expect("each event happens once");
            let it = &mut self.processes[process];
            if matches!(event, Event::Store(_) | Event::Settle(_)) {
                self.at_store(process, event, now);
            } else if it.is_dead {
            } else if it.is_stopped && !matches!(event, Event::Wake | Event::Arrive(_)) {
                it.held.push(event);
            } else {
                self.at_process(process, event, now);
            }
        }
        self.out.departed.sort_by_key(|it| it.at);
        let guards = (0..self.processes.len()).map(|process| self.guard(process, false));
        self.out.guard = guards.min().unwrap_or(0);
    }

    fn guard(&self, process: usize, with_wanted: bool) -> u64 {
        let (it, floor) = (&self.processes[process], self.setup.floor);
        let wanted = if with_wanted { it.wanted } else { 0 };
        floor.max(it.up + it.down + floor / 4).max(wanted)
    }
}

//! Properties of a queue under any order of operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const GUARD: Duration = Duration::from_millis(10);
const LARGEST_COST: u32 = 2;

#[derive(Debug, Clone)]
enum Operation {
    /// A request of this cost joins, with a bound in milliseconds.
    Join(Mode, u32, Option<u64>),
    /// The task of a request is polled, though nothing may have woken it.
    Poll(usize),
    /// All tasks are polled that were woken or whose timers have passed.
    PollWoken,
    Cancel(usize),
    /// A permit is not used.
    Forfeit(usize),
    /// So many milliseconds pass.
    Pass(u64),
    /// The call that is due is sent.
    Begin,
    /// The store grants turns to the first requests, so many milliseconds apart.
    Answer(u32, u64),
    /// The call fails; the store may have executed it.
    Fail(bool),
    /// An answer to an earlier call arrives.
    AnswerLate,
    Refuse,
    Out,
    Pause(u64),
    Resume,
    Nudge,
}

fn operation() -> impl Strategy<Value = Operation> {
    let bound = prop::option::weighted(0.3, 0_u64..300);
    prop_oneof![
        6 => (1..=3_u32, bound).prop_map(|(cost, bound)| Operation::Join(Mode::Wait, cost.min(2), bound)),
        2 => (1..=2_u32).prop_map(|cost| Operation::Join(Mode::Try, cost, None)),
        3 => (0..20_usize).prop_map(Operation::Poll),
        4 => Just(Operation::PollWoken),
        3 => (0..20_usize).prop_map(Operation::Cancel),
        2 => (0..20_usize).prop_map(Operation::Forfeit),
        5 => (0_u64..60).prop_map(Operation::Pass),
        6 => Just(Operation::Begin),
        6 => (0..5_u32, 0_u64..40).prop_map(|(grants, apart)| Operation::Answer(grants, apart)),
        1 => any::<bool>().prop_map(Operation::Fail),
        1 => Just(Operation::AnswerLate),
        1 => Just(Operation::Refuse),
        1 => Just(Operation::Out),
        1 => (1_u64..100).prop_map(Operation::Pause),
        1 => Just(Operation::Resume),
        1 => Just(Operation::Nudge),
    ]
}

/// The task of a request.
#[derive(Debug, Default)]
struct Task {
    is_woken: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Joined {
    place: u64,
    task: Arc<Task>,
    /// The end of its sleep, if it was polled.
    sleeps: Option<Option<Instant>>,
}

/// A queue, with what its dispatcher and its store know.
#[derive(Debug)]
struct Bench {
    queue: Queue,
    now: Instant,
    joined: Vec<Joined>,
    permits: Vec<Turn>,
    places: u64,
    number: u64,
    in_flight: Option<(u64, Take)>,
    late: Option<u64>,
    /// The units of each grant that are neither used nor returned, by its time.
    open: BTreeMap<u64, i64>,
}

impl Bench {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            now: Instant::now(),
            joined: Vec::new(),
            permits: Vec::new(),
            places: 0,
            number: 0,
            in_flight: None,
            late: None,
            open: BTreeMap::new(),
        }
    }

    fn apply(&mut self, operation: &Operation) {
        self.run(operation);
        self.check();
    }

    fn run(&mut self, operation: &Operation) {
        let mut woken = Woken::new();
        let now = self.now;
        match *operation {
            Operation::Join(mode, cost, bound) => {
                self.places += 1;
                let bound = bound.map(|bound| now + MILLI * bound as u32);
                self.queue.join(mode, self.places, cost.into(), now, bound);
                self.joined.push(Joined {
                    place: self.places,
                    task: Arc::default(),
                    sleeps: None,
                });
            }
            Operation::Poll(nth) if nth < self.joined.len() => self.poll(nth),
            Operation::PollWoken => {
                for nth in (0..self.joined.len()).rev() {
                    let joined = &self.joined[nth];
                    let is_over = |until: Option<Instant>| until.is_some_and(|it| it <= now);
                    let is_due = joined.sleeps.is_none_or(is_over);
                    if is_due || joined.task.is_woken.load(Ordering::Relaxed) {
                        self.poll(nth);
                    }
                }
            }
            Operation::Cancel(nth) if nth < self.joined.len() => {
                let joined = self.joined.remove(nth);
                self.queue.leave(joined.place, now, &mut woken);
            }
            Operation::Forfeit(nth) if nth < self.permits.len() => {
                let turn = self.permits.remove(nth);
                *self.open.entry(turn.recorded).or_default() += i64::from(turn.units.0[0]);
                self.queue.pass_on(Mode::Wait, turn, now, &mut woken);
            }
            Operation::Pass(millis) => self.now += MILLI * millis as u32,
            Operation::Begin => self.begin(&mut woken),
            Operation::Answer(grants, apart) => self.answer(grants, apart, &mut woken),
            Operation::Fail(is_outcome_unknown) => {
                if let Some((number, ask)) = self.in_flight.take() {
                    self.late = Some(number);
                    for settlement in ask
                        .corrections
                        .settlements
                        .iter()
                        .filter(|_| !is_outcome_unknown)
                    {
                        // It is sent again.
                        *self.open.entry(settlement.recorded).or_default() -= settlement.difference;
                    }
                    let mut error = StoreError::new("failed");
                    if is_outcome_unknown {
                        error = error.outcome_unknown();
                    }
                    self.queue.failed(number, &error, now, &mut woken);
                }
            }
            Operation::AnswerLate => {
                if let Some(number) = self.late.take() {
                    let turn = (self.turn(0), 1);
                    let answer = Answer {
                        turns: std::iter::once(turn).collect(),
                        ..Answer::default()
                    };
                    let before = self.queue.clone();
                    self.queue.answer(number, &answer, now, &mut woken);
                    assert_eq!(self.queue, before, "a late answer is ignored");
                }
            }
            Operation::Refuse => {
                if let Some((number, _)) = self.in_flight.take() {
                    let settlements = self.queue.unsent.settlements.clone();
                    self.returned(&settlements);
                    let error = StoreError::new("refused").no_outage();
                    self.queue.failed(number, &error, now, &mut woken);
                }
            }
            Operation::Out if self.in_flight.is_none() => {
                let settlements = self.queue.unsent.settlements.clone();
                self.queue.out(&StoreError::new("out"), now, &mut woken);
                if self.queue.unsent.settlements.is_empty() {
                    self.returned(&settlements);
                }
            }
            Operation::Pause(millis) => {
                let until = now + MILLI * millis as u32;
                self.queue.pause(until, now, &mut woken);
            }
            Operation::Resume => self.queue.resume(now),
            Operation::Nudge => self.queue.nudge(now),
            _ => {}
        }
        woken.into_iter().for_each(Waker::wake);
    }

    fn turn(&self, nth: u64) -> Turn {
        let from = self.now + MILLI * nth as u32;
        Turn {
            from,
            until: from + GUARD,
            recorded: self.number * 1_000 + nth + 1,
            counters: CounterSet::default(),
            units: Costs::default(),
            guard: GUARD,
        }
    }

    fn poll(&mut self, nth: usize) {
        let joined = &mut self.joined[nth];
        joined.task.is_woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(joined.task.clone());
        let mut woken = Woken::new();
        let step = loop {
            match self.queue.poll(joined.place, self.now, &waker, &mut woken) {
                Step::Missed(turn) => {
                    assert!(turn.until < self.now, "it was polled in time");
                }
                step => break step,
            }
        };
        match step {
            Step::Wait(until) => joined.sleeps = Some(until),
            Step::Depart(turn, _) => {
                assert!(turn.from <= self.now && self.now <= turn.until, "{turn:?}");
                *self.open.entry(turn.recorded).or_default() -= i64::from(turn.units.0[0]);
                self.permits.push(turn);
                self.joined.remove(nth);
            }
            Step::Fail(_) => drop(self.joined.remove(nth)),
            Step::Missed(_) => unreachable!("it was polled again"),
        }
        woken.into_iter().for_each(Waker::wake);
    }

    fn begin(&mut self, woken: &mut Woken) {
        self.queue.check(self.now, woken);
        if self.in_flight.is_none() && self.queue.call_due().is_some_and(|due| due <= self.now) {
            self.number += 1;
            let arrived = |at: Instant| (at - self.now.min(at)).as_micros() as u64;
            let queue = &mut self.queue;
            let ask = queue.begin(self.number, &LARGEST_COST.into(), None, arrived, woken);
            assert!(ask.corrections.settlements.len() <= Corrections::MOST);
            self.returned(&ask.corrections.settlements);
            self.in_flight = Some((self.number, ask));
        }
    }

    fn returned(&mut self, settlements: &[Settlement]) {
        for settlement in settlements {
            *self.open.entry(settlement.recorded).or_default() += settlement.difference;
        }
    }

    fn answer(&mut self, grants: u32, apart: u64, woken: &mut Woken) {
        let Some((number, ask)) = self.in_flight.take() else {
            return;
        };
        let grants = u64::from(grants).min(ask.demand.requests());
        let turns: SmallVec<[(Turn, u32); 1]> =
            (0..grants).map(|nth| (self.turn(nth * apart), 1)).collect();
        for (nth, (turn, _)) in (0..).zip(&turns) {
            let units = ask.demand.units_of(nth + 1) - ask.demand.units_of(nth);
            *self.open.entry(turn.recorded).or_default() += units.total() as i64;
        }
        let granted = ask.demand.units_of(grants);
        let points = ask.demand.points_from(granted);
        let expected =
            points.map(|(point, _)| self.now + MILLI * (100 + 20 * point.units.total() as u32));
        let is_left = ask.mode == Mode::Wait && granted != ask.demand.units();
        let answer = Answer {
            turns,
            expected: expected.collect(),
            uncertainty: Duration::ZERO,
            next_call: is_left.then(|| self.now + 50 * MILLI),
            lease: None,
            standing: Standing::default(),
        };
        self.queue.answer(number, &answer, self.now, woken);
    }

    fn check(&self) {
        self.check_units();
        self.check_tasks();
        self.check_order();
        let queue = &self.queue;
        let without_turn = queue.waiting.len() + queue.tries.len();
        let requests = without_turn + queue.departing.requests.len() + queue.failed.len();
        assert_eq!(requests, self.joined.len(), "a request leaks");
        let has_to_ask = !queue.waiting.is_empty() || !queue.tries.is_empty();
        let has_to_send = queue.is_announced || queue.unsent.lost > 0;
        let has_to_call = has_to_ask || has_to_send || !queue.unsent.settlements.is_empty();
        if queue.is_idle() {
            assert!(self.joined.is_empty() && !has_to_call, "{queue:?}");
        }
        if matches!(queue.stage, Stage::Idle) && queue.out.is_none() {
            assert!(!has_to_call, "no call is due: {queue:?}");
            assert_eq!(queue.is_idle(), self.joined.is_empty(), "{queue:?}");
        }
    }

    /// Each granted unit is used by a request, held by one, or on its way back to the store.
    fn check_units(&self) {
        let mut open = self.open.clone();
        for Departing { turn, .. } in self.queue.departing.requests.values() {
            *open.entry(turn.recorded).or_default() -= i64::from(turn.units.0[0]);
        }
        for settlement in &self.queue.unsent.settlements {
            *open.entry(settlement.recorded).or_default() += settlement.difference;
        }
        assert!(open.values().all(|&units| units == 0), "{open:?}");
    }

    /// A task that sleeps would be woken for the next step of its request.
    fn check_tasks(&self) {
        for joined in &self.joined {
            let Some(until) = joined.sleeps else {
                continue;
            };
            if joined.task.is_woken.load(Ordering::Relaxed) {
                continue;
            }
            let (queue, place) = (&self.queue, joined.place);
            let is_in_time = |at: Instant| until.is_some_and(|until| until <= at);
            assert!(!queue.failed.contains_key(&place), "{joined:?}");
            if let Some(Departing { turn, .. }) = queue.departing.requests.get(&place) {
                match queue.departing.stall.blocks(place) {
                    true => assert!(queue.departing.stall.check.is_some(), "{joined:?}"),
                    false => assert!(is_in_time(turn.from), "{joined:?}"),
                }
                continue;
            }
            let request = queue.waiting.get(&place).or(queue.tries.get(&place));
            let request = request.expect("it waits");
            let out = queue.out.as_ref();
            let out = out.map(|out| out.since.max(request.arrival) + OUTAGE_WAIT);
            let soonest = match queue.latest.reset {
                None => request.arrival + FIRST_ANSWER,
                Some(_) => request.arrival,
            };
            let bound = request.bound.map(|bound| bound.max(soonest));
            let bounds = bound.into_iter().chain(out);
            assert!(bounds.min().is_none_or(is_in_time), "{joined:?}");
        }
    }

    /// Requests of equal cost have turns in their order, also if they have lost some. A turn that is almost over stays
    /// with its request.
    fn check_order(&self) {
        let departing = self.queue.departing.requests.iter();
        let waits = |it: &Departing| it.request.mode == Mode::Wait && it.turn.is_useful(self.now);
        let departing = departing.filter(|(_, it)| waits(it));
        let departing = departing.map(|(place, it)| (place, &it.request, Some(it.turn.from)));
        let waiting = self.queue.waiting.iter();
        let waiting = waiting.map(|(place, it)| (place, it, None));
        let mut requests: Vec<_> = departing.chain(waiting).collect();
        requests.sort_by_key(|(place, it, _)| (it.cost.0, **place));
        for pair in requests.windows(2) {
            let ((_, one, from), (_, other, later)) = (&pair[0], &pair[1]);
            if one.cost == other.cost && later.is_some() {
                assert!(
                    from.is_some() && from <= later,
                    "it was overtaken: {pair:?}"
                );
            }
        }
    }

    /// The store works, and grants what is asked: all requests end, and nothing is left.
    fn finish(&mut self) {
        for _ in 0..200 {
            for operation in [
                Operation::Begin,
                Operation::Answer(8, 5),
                Operation::PollWoken,
                Operation::Nudge,
                Operation::Pass(5),
            ] {
                self.apply(&operation);
            }
            if self.joined.is_empty() && self.queue.is_idle() && self.in_flight.is_none() {
                return;
            }
        }
        panic!("a request never ends: {self:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_unit_waker_or_request_is_lost(operations in prop::collection::vec(operation(), 1..80)) {
        let mut bench = Bench::new();
        for operation in &operations {
            bench.apply(operation);
        }
        bench.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requests miss turns as their tasks are late, or behind another that is late. Then only those overtake them that
    /// depart before the miss is noticed, or whose own turns are almost over by then.
    #[test]
    fn requests_keep_their_order_when_any_of_them_miss_a_turn(
        requests in prop::collection::vec((1..=2_u32, any::<bool>()), 10..40),
        (grants, apart) in (1..40_u32, 0..15_u64),
    ) {
        let mut bench = Bench::new();
        for (cost, _) in &requests {
            bench.run(&Operation::Join(Mode::Wait, *cost, None));
        }
        let mut missed: BTreeMap<u64, Instant> = BTreeMap::new();
        let mut departed: Vec<(u64, Instant, Instant)> = Vec::new();
        for _ in 0..3_000 {
            if bench.joined.is_empty() {
                break;
            }
            bench.run(&Operation::Begin);
            bench.run(&Operation::Answer(grants, apart));
            for place in 1..=requests.len() as u64 {
                let Some(nth) = bench.joined.iter().position(|joined| joined.place == place) else {
                    continue;
                };
                let (waiting, departing) = (&bench.queue.waiting, &bench.queue.departing.requests);
                let (is_over, has_missed) = match departing.get(&place) {
                    Some(it) => (it.turn.until < bench.now, it.request.has_missed),
                    None => (false, waiting[&place].has_missed),
                };
                let has_turn = departing.contains_key(&place);
                if is_over || has_missed {
                    missed.insert(place, bench.now);
                }
                let misses = requests[place as usize - 1].1 && !missed.contains_key(&place);
                if !misses || !has_turn {
                    let left = bench.joined.len();
                    bench.run(&Operation::Poll(nth));
                    if bench.joined.len() < left {
                        let turn = bench.permits.last().expect("none has a bound");
                        departed.push((place, bench.now, turn.until));
                    }
                }
            }
            bench.run(&Operation::Pass(1));
        }
        prop_assert_eq!(departed.len(), requests.len());
        let cost = |place: u64| requests[place as usize - 1].0;
        for (rank, &(place, _, _)) in departed.iter().enumerate() {
            let missed = missed.get(&place).copied();
            for &(other, at, until) in &departed[..rank] {
                let may = missed.is_some_and(|missed| at < missed || until < missed + GUARD / 2);
                let is_alike = cost(other) == cost(place);
                prop_assert!(!is_alike || other < place || may, "{other} overtook {place}");
            }
        }
    }
}

#[test]
fn a_try_that_misses_its_turn_does_not_wait() {
    let mut bench = Bench::new();
    bench.apply(&Operation::Join(Mode::Try, 1, None));
    for (grants, millis) in [(1, 20), (0, 0)] {
        bench.apply(&Operation::Begin);
        bench.apply(&Operation::Answer(grants, 0));
        bench.apply(&Operation::Pass(millis));
        bench.apply(&Operation::PollWoken);
    }
    assert!(bench.joined.is_empty(), "it has failed: {bench:?}");
}

#[test]
fn a_pause_makes_no_estimate_late() {
    let mut bench = Bench::new();
    for operation in [
        Operation::Join(Mode::Wait, 1, Some(125)),
        Operation::Join(Mode::Wait, 1, None),
        Operation::Begin,
        Operation::Pause(10),
        // The second request is expected in 140 ms. The first one has a turn, which the pause takes from it.
        Operation::Answer(1, 0),
        Operation::PollWoken,
    ] {
        bench.apply(&operation);
    }
    assert_eq!(bench.joined.len(), 2, "none has failed: {bench:?}");
}

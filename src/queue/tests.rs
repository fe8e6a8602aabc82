//! The order of many requests that miss their turns, and what the model leaves out.

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const GUARD: Duration = Duration::from_millis(10);

/// A queue, and the places of its requests.
struct Bench {
    queue: Queue,
    now: Instant,
    joined: Vec<u64>,
    places: u64,
    number: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            now: Instant::now(),
            joined: Vec::new(),
            places: 0,
            number: 0,
        }
    }

    /// A request joins, with a bound in milliseconds.
    fn join(&mut self, mode: Mode, cost: u32, bound: Option<u32>) {
        self.places += 1;
        let bound = bound.map(|bound| self.now + MILLI * bound);
        let queue = &mut self.queue;
        queue.join(mode, self.places, cost.into(), self.now, bound);
        self.joined.push(self.places);
    }

    /// Sends the call that is due, and calls this before the store grants turns to the first requests, so many
    /// milliseconds apart.
    fn call(&mut self, grants: u32, apart: u32, before: impl FnOnce(&mut Self)) {
        let mut woken = Woken::new();
        self.queue.check(self.now, &mut woken);
        if self.queue.call_due().is_none_or(|due| due > self.now) {
            return;
        }
        self.number += 1;
        let (number, largest_costs) = (self.number, 2.into());
        let arrived = |at: Instant| (at - self.now.min(at)).as_micros() as u64;
        let ask = (self.queue).begin(number, &largest_costs, None, arrived, &mut woken);
        before(self);
        let grants = u64::from(grants).min(ask.demand.requests());
        let turns = (0..grants as u32).map(|nth| {
            let from = self.now + MILLI * nth * apart;
            let turn = Turn {
                from,
                until: from + GUARD,
                recorded: number * 1_000 + u64::from(nth * apart) + 1,
                counters: CounterSet::default(),
                units: Costs::default(),
                guard: GUARD,
            };
            (turn, 1)
        });
        let granted = ask.demand.units_of(grants);
        let points = ask.demand.points_from(granted);
        let expected =
            points.map(|(point, _)| self.now + MILLI * (100 + 20 * point.units.total() as u32));
        let is_left = ask.mode == Mode::Wait && granted != ask.demand.units();
        let answer = Answer {
            turns: turns.collect(),
            expected: expected.collect(),
            next_call: is_left.then(|| self.now + 50 * MILLI),
            ..Answer::default()
        };
        self.queue.answer(number, &answer, self.now, &mut woken);
    }

    /// Polls a request, and returns the turn in which it departs.
    fn poll(&mut self, place: u64) -> Option<Turn> {
        let mut woken = Woken::new();
        let step = loop {
            match (self.queue).poll(place, self.now, Waker::noop(), &mut woken) {
                Step::Missed(turn) => assert!(turn.until < self.now, "it was polled in time"),
                step => break step,
            }
        };
        if let Step::Depart(..) | Step::Fail(_) = step {
            self.joined.retain(|it| *it != place);
        }
        match step {
            Step::Depart(turn, _) => {
                assert!(turn.from <= self.now && self.now <= turn.until, "{turn:?}");
                Some(turn)
            }
            _ => None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requests miss turns as their tasks are late, or behind another that is late. Then only those overtake them that
    /// depart before the miss is noticed, or whose own turns are almost over by then.
    #[test]
    fn requests_keep_their_order_when_any_of_them_miss_a_turn(
        requests in prop::collection::vec((1..=2_u32, any::<bool>()), 10..40),
        (grants, apart) in (1..40_u32, 0..15_u32),
    ) {
        let mut bench = Bench::new();
        for (cost, _) in &requests {
            bench.join(Mode::Wait, *cost, None);
        }
        let mut missed: BTreeMap<u64, Instant> = BTreeMap::new();
        let mut departed: Vec<(u64, Instant, Instant)> = Vec::new();
        for _ in 0..3_000 {
            if bench.joined.is_empty() {
                break;
            }
            bench.call(grants, apart, |_| {});
            for place in bench.joined.clone() {
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
                    let turn = bench.poll(place);
                    departed.extend(turn.map(|turn| (place, bench.now, turn.until)));
                }
            }
            bench.now += MILLI;
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

/// More and more requests may depart, as none does.
#[test]
fn requests_whose_tasks_are_not_polled_let_others_past_within_the_guard() {
    const STUCK: u64 = 3 * NEIGHBOURS as u64;
    let mut bench = Bench::new();
    (0..2 * STUCK).for_each(|_| bench.join(Mode::Wait, 1, None));
    bench.call(2 * STUCK as u32, 0, |_| {});
    let ends = bench.now + GUARD;
    let mut departed = Vec::new();
    while bench.now < ends {
        bench.now += MILLI / 10;
        bench.queue.check(bench.now, &mut Woken::new());
        for place in bench.joined.clone().split_off(STUCK as usize) {
            departed.extend(bench.poll(place).map(|_| place));
        }
    }
    assert!(departed.len() >= NEIGHBOURS, "{departed:?}");
}

#[test]
fn a_try_that_misses_its_turn_does_not_wait() {
    let mut bench = Bench::new();
    bench.join(Mode::Try, 1, None);
    for grants in [1, 0] {
        bench.call(grants, 0, |_| {});
        bench.now += 20 * MILLI * grants;
        bench.poll(1);
    }
    assert!(bench.joined.is_empty(), "it has failed");
}

#[test]
fn a_pause_makes_no_estimate_late() {
    let mut bench = Bench::new();
    bench.join(Mode::Wait, 1, Some(125));
    bench.join(Mode::Wait, 1, None);
    // The second request is expected in 140 ms. The first one has a turn, which the pause takes from it.
    bench.call(1, 0, |bench| {
        let until = bench.now + 10 * MILLI;
        bench.queue.pause(until, bench.now, &mut Woken::new());
    });
    for place in [1, 2] {
        bench.poll(place);
    }
    assert_eq!(bench.joined.len(), 2, "none has failed");
}

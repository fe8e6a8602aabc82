//! What the model leaves out.

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const GUARD: Duration = Duration::from_millis(10);

/// A queue, and the places of its requests.
struct Bench {
    queue: Queue,
    now: Instant,
    joined: Vec<u64>,
    number: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            now: Instant::now(),
            joined: Vec::new(),
            number: 0,
        }
    }

    /// A request joins, with a bound in milliseconds.
    fn join(&mut self, mode: Mode, bound: Option<u32>) {
        let place = self.joined.len() as u64 + 1;
        let bound = bound.map(|bound| self.now + MILLI * bound);
        (self.queue).join(mode, place, 1.into(), self.now, bound);
        self.joined.push(place);
    }

    /// Sends a call, and calls this before the store grants turns to the first requests.
    fn call(&mut self, grants: u32, before: impl FnOnce(&mut Self)) {
        let mut woken = Woken::new();
        self.queue.check(self.now, &mut woken);
        self.number += 1;
        let (number, largest_costs) = (self.number, 1.into());
        let ask = (self.queue).begin(number, &largest_costs, None, |_| 0, &mut woken);
        before(self);
        let turn = Turn {
            from: self.now,
            until: self.now + GUARD,
            recorded: 1,
            counters: CounterSet::default(),
            units: Costs::default(),
            guard: GUARD,
        };
        let left = ask.demand.points_from(Costs::from(grants).into());
        let expected =
            left.map(|(point, _)| self.now + MILLI * (100 + 20 * point.units.total() as u32));
        let answer = Answer {
            turns: std::iter::repeat_n((turn, 1), grants as usize).collect(),
            expected: expected.collect(),
            next_call: Some(self.now + 50 * MILLI),
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

/// More and more requests may depart, as none does.
#[test]
fn requests_whose_tasks_are_not_polled_let_others_past_within_the_guard() {
    const STUCK: u64 = 3 * NEIGHBOURS as u64;
    let mut bench = Bench::new();
    (0..2 * STUCK).for_each(|_| bench.join(Mode::Wait, None));
    bench.call(2 * STUCK as u32, |_| {});
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
    bench.join(Mode::Try, None);
    for grants in [1, 0] {
        bench.call(grants, |_| {});
        bench.now += 20 * MILLI * grants;
        bench.poll(1);
    }
    assert!(bench.joined.is_empty(), "it has failed");
}

#[test]
fn a_pause_makes_no_estimate_late() {
    let mut bench = Bench::new();
    bench.join(Mode::Wait, Some(125));
    bench.join(Mode::Wait, None);
    // The second request is expected in 140 ms. The first one has a turn, which the pause takes from it.
    bench.call(1, |bench| {
        let until = bench.now + 10 * MILLI;
        bench.queue.pause(until, bench.now, &mut Woken::new());
    });
    for place in [1, 2] {
        bench.poll(place);
    }
    assert_eq!(bench.joined.len(), 2, "none has failed");
}

//! The queue and a ledger against each other, through random histories of a process's waiters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::time::Instant;

use super::ask::Asked;
use super::bound::Bound;
use super::held::Call;
use super::queue::{Queue, Refusal, WaiterId, Wakes};
use crate::algorithm::Rule;
use crate::algorithm::ledger::{Ledger, Terms};
use crate::algorithm::micros;
use crate::clock::{Reading, StoreClock};
use crate::guard::Guard;
use crate::store::{Notice, Reserved, StoreError, Word};
use crate::test_util::history::History;

mod lone;
mod pause;
mod silence;

const LIMIT: u32 = 3;
const WINDOW: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(20);
const EPOCH: u64 = 1_763_000_000_000_000;

#[derive(Debug, Clone)]
enum Step {
    Join {
        cost: u32,
        bound: Option<u64>,
    },
    Leave(Index),
    Look(Index),
    LookAll,
    Ask,
    Answer,
    Fail,
    /// The call is lost, as the store is out from then on.
    Lose,
    /// It is back.
    Return,
    GiveBack,
    Pass(u64),
    Say(Word),
    Hear,
}

fn step() -> impl Strategy<Value = Step> {
    let bound =
        prop_oneof![3 => Just(None), 1 => Just(Some(0)), 1 => (1..5_000_u64).prop_map(Some)];
    prop_oneof![
        6 => (prop_oneof![4 => Just(1), 1 => 1..=LIMIT], bound)
            .prop_map(|(cost, bound)| Step::Join { cost, bound }),
        3 => any::<Index>().prop_map(Step::Leave),
        1 => any::<Index>().prop_map(Step::Look),
        4 => Just(Step::LookAll),
        4 => Just(Step::Ask),
        4 => Just(Step::Answer),
        1 => Just(Step::Fail),
        1 => Just(Step::Lose),
        2 => Just(Step::Return),
        2 => Just(Step::GiveBack),
        6 => prop_oneof![0..8_u64, 0..40_u64, 0..600_u64].prop_map(Step::Pass),
        1 => word().prop_map(Step::Say),
        1 => Just(Step::Hear),
    ]
}

fn word() -> impl Strategy<Value = Word> {
    let span = (0..3_000_000_u64).boxed();
    let departed = u64::MAX;
    prop_oneof![
        3 => span.clone().prop_map(move |span| Word::Pause { span, departed }),
        2 => (0..5_u32, span).prop_map(|(left, span)| Word::Allow { left, span }),
        1 => Just(Word::Resume),
        1 => Just(Word::None),
    ]
}

fn lost() -> StoreError {
    StoreError::new("lost")
}

/// One process with its queue, and the store.
struct World {
    queue: Queue,
    guard: Arc<Guard>,
    clock: StoreClock,
    ledger: Ledger,
    /// When the store did something last.
    served: u64,
    start: Instant,
    now: Instant,
    in_flight: Option<(Asked, Instant, Duration)>,
    waiting: Vec<(WaiterId, u32, Option<Instant>, Instant)>,
    /// Whether the store is out, and when it was first: who was refused then may look much later.
    is_out: bool,
    out_since: Option<Instant>,
    arrivals: u64,
    /// When, at what cost and in which order of arrival.
    departed: Vec<(Duration, u32, u64)>,
    records: Vec<(u64, u32)>,
    /// What was said and not yet heard, and whether it still holds.
    said: VecDeque<(Notice, bool)>,
    /// When the last pause was heard of, and until when it holds.
    paused: Option<(u64, u64)>,
}

impl World {
    fn new() -> Self {
        let guard = Arc::new(Guard::new(GUARD));
        let start = Instant::now();
        Self {
            queue: Queue::new(guard.clone()),
            clock: StoreClock::new(),
            guard,
            ledger: Ledger::new(&[Rule::SlidingLog {
                limit: LIMIT,
                window: micros(WINDOW),
            }]),
            served: 0,
            start,
            now: start,
            in_flight: None,
            waiting: Vec::new(),
            is_out: false,
            out_since: None,
            arrivals: 0,
            departed: Vec::new(),
            records: Vec::new(),
            said: VecDeque::new(),
            paused: None,
        }
    }

    fn store_time(&self) -> u64 {
        EPOCH + micros(self.now - self.start)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Join { cost, bound } => self.join(*cost, *bound),
            Step::Leave(index) if !self.waiting.is_empty() => {
                let (id, ..) = self.waiting.remove(index.index(self.waiting.len()));
                self.queue.leave(id, self.now, &mut Wakes::new());
            }
            Step::Look(index) if !self.waiting.is_empty() => {
                self.look(index.index(self.waiting.len()));
            }
            Step::LookAll => self.look_all(),
            Step::Ask if self.is_out => {
                self.queue.out(&lost(), false, self.now, &mut Wakes::new());
            }
            Step::Ask if self.in_flight.is_none() => {
                if let Some(asked) = self.queue.ask(self.now) {
                    self.in_flight = Some((asked, self.now, self.guard.current()));
                }
            }
            Step::Answer => self.answer(),
            Step::Fail => {
                if let Some((asked, ..)) = self.in_flight.take() {
                    let error = lost().no_outage();
                    self.queue
                        .failed(&asked, &error, self.now, &mut Wakes::new());
                }
            }
            Step::Lose => {
                if let Some((asked, ..)) = self.in_flight.take() {
                    self.queue
                        .lost(&asked, &lost(), false, self.now, &mut Wakes::new());
                    self.is_out = true;
                    self.out_since.get_or_insert(self.now);
                }
            }
            Step::Return => {
                self.is_out = false;
                self.queue.look_again();
                self.queue.looks_again = false;
            }
            Step::GiveBack => {
                let surplus = self.queue.take_surplus();
                self.served = self.store_time();
                self.ledger.release(self.served, &surplus);
            }
            Step::Pass(millis) => {
                self.now += Duration::from_millis(*millis);
                self.queue.advance(self.now, &mut Wakes::new());
            }
            Step::Say(word) => {
                self.served = self.store_time();
                let notice = self.ledger.heed(self.served, *word);
                if *word == Word::Resume {
                    self.paused = None;
                    self.said.iter_mut().for_each(|(_, holds)| *holds = false);
                }
                self.said.push_back((notice, true));
            }
            Step::Hear => self.hear(),
            Step::Leave(_) | Step::Look(_) | Step::Ask => {}
        }
    }

    fn join(&mut self, cost: u32, bound: Option<u64>) {
        let deadline = bound.map(|millis| self.now + Duration::from_millis(millis));
        let bound = match (bound, deadline) {
            (Some(0), _) => Bound::Now,
            (_, Some(deadline)) => Bound::Until(deadline),
            (_, None) => Bound::Unlimited,
        };
        let id = self.queue.push(self.arrivals, cost, bound);
        self.arrivals += 1;
        self.waiting.push((id, cost, deadline, self.now));
    }

    fn terms(&self, guard: Duration) -> Terms {
        Terms {
            margin: micros(guard),
            least_margin: micros(self.guard.least()),
            floor: micros(guard),
            not_before: 0,
            round_trip: micros(self.guard.round_trip()),
            stagger: 1_000,
            peek: false,
        }
    }

    /// The store answers half way between the sending and now.
    fn answer(&mut self) {
        let Some((asked, sent, guard)) = self.in_flight.take() else {
            return;
        };
        let half = micros(self.now - sent) / 2;
        // But not before what it did last.
        let at = (self.store_time() - half).max(self.served);
        self.served = at;
        self.is_out = false;
        let terms = Terms {
            not_before: asked.not_before,
            ..self.terms(guard)
        };
        let outcomes = self.ledger.reserve(at, &terms, &asked.asks);
        let reserved = Reserved::new(at, outcomes, 0, Duration::ZERO);
        let call = Call {
            life: 0,
            sent,
            received: self.now,
            guard,
            buffer: Duration::ZERO,
            offset: self
                .clock
                .observe(sent, self.now, at, Reading::default())
                .offset,
        };
        self.queue
            .answered(&asked, reserved, call, &mut Wakes::new());
        self.queue.advance(self.now, &mut Wakes::new());
    }

    fn hear(&mut self) {
        let Some((notice, holds)) = self.said.pop_front() else {
            return;
        };
        let believed = self.paused.map_or(0, |(_, until)| until);
        let is_believed = notice.is_resumption() && believed > notice.now;
        if holds {
            self.paused = (notice.paused > 0).then(|| (self.store_time(), notice.paused));
        }
        self.queue.hear(notice, self.now, &mut Wakes::new());
        if is_believed {
            self.queue.ask_anew(self.now, &mut Wakes::new());
        }
    }

    fn look_all(&mut self) {
        let mut place = 0;
        while place < self.waiting.len() {
            if !self.look(place) {
                place += 1;
            }
        }
    }

    fn look(&mut self, place: usize) -> bool {
        let (id, cost, deadline, joined) = self.waiting[place];
        let mut cx = Context::from_waker(Waker::noop());
        let answer = self.queue.poll(id, &mut cx, self.now, &mut Wakes::new());
        match answer {
            Poll::Pending => return false,
            Poll::Ready(Ok(held)) => {
                assert_eq!(held.slot.cost, cost);
                assert!(held.due <= self.now && self.now < held.expires);
                if let Some((heard, until)) = self.paused {
                    // Who was about to leave does.
                    let slot = &held.slot;
                    assert!(
                        slot.at <= heard || slot.at >= until,
                        "{slot:?} in {:?}",
                        self.paused
                    );
                }
                self.departed
                    .push((self.now - self.start, cost, id.arrival()));
                self.records.push((held.slot.record, cost));
            }
            Poll::Ready(Err(Refusal::TooLong(_) | Refusal::Denied(_))) => {
                assert!(deadline.is_some(), "no bound was set")
            }
            Poll::Ready(Err(Refusal::Store(error))) if error.is_outage() => match deadline {
                Some(deadline) => assert!(deadline <= self.now || deadline == joined),
                None => {
                    let since = self.out_since.expect("it was out").max(joined);
                    assert!(self.now - since >= Duration::from_millis(4_900));
                }
            },
            Poll::Ready(Err(Refusal::Store(_))) => {}
            Poll::Ready(Err(Refusal::Leave(_) | Refusal::Evicted)) => panic!("nothing stands in"),
        }
        self.waiting.remove(place);
        true
    }

    /// Serves everyone as a driver would, of a store that answers.
    fn finish(&mut self) {
        let mut rounds = 0;
        self.take(&Step::Return);
        while !self.waiting.is_empty() || self.in_flight.is_some() || !self.queue.is_idle() {
            for step in [
                Step::Hear,
                Step::GiveBack,
                Step::Ask,
                Step::Answer,
                Step::LookAll,
            ] {
                self.take(&step);
            }
            let next = self.queue.plan().unwrap_or(self.now);
            let step = next
                .saturating_duration_since(self.now)
                .max(Duration::from_millis(1));
            self.now += step;
            self.queue.advance(self.now, &mut Wakes::new());
            self.look_all();
            rounds += 1;
            assert!(rounds < 10_000, "{} wait for ever", self.waiting.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn waiters_of_any_history_depart_in_order_and_leave_nothing_behind(
        steps in vec(step(), 1..200),
    ) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.take(step));
        world.finish();

        let departed = &world.departed;
        let history: History = departed.iter().map(|&(at, cost, _)| (at, cost.into())).collect();
        history.assert_at_most(LIMIT.into(), WINDOW);

        // Nothing stays charged but what departed within the last window, and slots that were
        // overtaken by others before they were given back, until their time.
        let now = world.store_time();
        world.ledger.heed(now, Word::Resume);
        world.ledger.release(now, &[]);
        let counts = |&&(record, _): &&(u64, u32)| record + micros(WINDOW) > now;
        let charged: u32 = world.records.iter().filter(counts).map(|&(_, cost)| cost).sum();
        let free: u32 = world.ledger.free().iter().map(|slot| slot.cost).sum();
        assert_eq!(world.ledger.remaining(now, &world.terms(WINDOW)), LIMIT.saturating_sub(charged + free));
        let later = world.ledger.free().iter().map(|slot| slot.at + 1).max().unwrap_or(now);
        world.ledger.release(later, &[]);
        assert!(world.ledger.free().is_empty());
    }

    #[test]
    fn waiters_that_look_when_told_depart_in_order(steps in vec(step(), 1..200)) {
        let mut world = World::new();
        for step in &steps {
            if !matches!(step, Step::Look(_)) {
                world.take(step);
                world.look_all();
            }
        }
        world.finish();
        let order = world.departed.iter().map(|&(.., arrival)| arrival);
        assert!(order.is_sorted(), "{:?}", world.departed);
    }
}

//! What is lost is missed, and nothing else.

use proptest::prelude::*;

use super::super::super::simulation::{Action, Step, rules, steps};
use super::super::{Ask, Outcome, Slot, Terms};
use super::*;
use crate::algorithm::Rule;

const START: u64 = 1_763_000_000_000_000;
const SPAN: u64 = 3_000_000;
const TOLERANCE: u64 = 10_000;

fn terms(margin: u64) -> Terms {
    Terms {
        least_margin: margin / 3,
        floor: margin / 2,
        ..Terms::of_margin(margin)
    }
}

/// A process, and what it knows.
#[derive(Default)]
struct Process {
    id: u32,
    known: Option<Life>,
    /// At which version of it it was handed out slots last.
    granted: u64,
    /// When nothing counts any more that it was handed out.
    over: u64,
    held: Vec<Slot>,
}

impl Process {
    fn new(id: u32) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    fn evidence(&self, now: u64) -> Evidence {
        let evidence = Evidence::new(self.known.filter(|_| now < self.over), SPAN, TOLERANCE);
        evidence.of_process(self.id, self.granted)
    }

    /// Whether the state is said to be lost.
    fn ask(
        &mut self,
        ledger: &mut Ledger,
        rules: &[Rule],
        now: u64,
        margin: u64,
        asks: &[Ask],
    ) -> bool {
        let is_lost = ledger.doubt(now, &self.evidence(now), 0);
        let outcomes = ledger.reserve(now, &terms(margin), asks);
        let life = ledger.life().unwrap();
        let memory = rules.iter().map(Rule::memory).max().unwrap();
        for outcome in outcomes {
            if let Outcome::Granted(slot) = outcome {
                self.granted = life.version;
                self.over = self.over.max(slot.record + memory);
                self.held.push(slot);
            }
        }
        if self.known.is_some_and(|known| known.start != life.start) || self.over > now {
            self.known = Some(life);
        }
        is_lost
    }
}

/// Two processes in turn; `then` sees the state after each step, and both.
fn take(
    rules: &[Rule],
    largest_cost: u32,
    steps: &[Step],
    mut then: impl FnMut(u64, &[Process; 2], &Ledger),
) {
    let mut now = START;
    let mut processes = [Process::new(1), Process::new(2)];
    let mut ledger = Ledger::new(rules);
    for (turn, step) in steps.iter().enumerate() {
        now += step.advance.unsigned_abs();
        let process = &mut processes[turn % 2];
        match &step.action {
            Action::Reserve { margin, asks, .. } => {
                let mut asks = asks.clone();
                asks.iter_mut()
                    .for_each(|ask| ask.cost = ask.cost.min(largest_cost));
                let is_lost = process.ask(&mut ledger, rules, now, *margin, &asks);
                assert!(!is_lost, "nothing was lost");
            }
            Action::Release { places } => {
                let mut back = Vec::new();
                for place in places.iter().take(process.held.len()) {
                    back.push(process.held.remove(place.index(process.held.len())));
                }
                let life = process.known.map_or(0, |known| known.start);
                ledger.release_under(now, life, &back);
            }
            _ => {}
        }
        // As an expiry does it.
        if ledger.lasts() <= now {
            ledger = Ledger::new(rules);
        }
        then(now, &processes, &ledger);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn what_is_known_is_missed_only_where_it_is_lost(steps in steps(60, 1_000_000, 3)) {
        for (name, rules, largest_cost) in rules(1_000_000) {
            let mut before = Ledger::new(&rules);
            take(&rules, largest_cost, &steps, |now, processes, ledger| {
                for process in processes {
                    let evidence = process.evidence(now);
                    assert!(!ledger.clone().doubt(now, &evidence, 0), "{name}: nothing is");
                    let mut emptied = Ledger::new(&rules);
                    let is_lost = emptied.doubt(now, &evidence, 0);
                    assert_eq!(is_lost, evidence.life.is_some(), "{name}: all of it is");
                    let mut older = before.clone();
                    let was_granted = evidence.life.is_some_and(|known| {
                        older.life().is_none_or(|life| life.version < known.version)
                    });
                    assert_eq!(older.doubt(now, &evidence, 0), was_granted, "{name}: the last is");
                    for lost in [emptied, older].iter_mut().filter(|_| was_granted) {
                        let ask = Ask { count: 1, cost: 1, max_wait: u64::MAX };
                        let outcomes = lost.reserve(now, &terms(0), &[ask]);
                        let [Outcome::Granted(slot)] = &outcomes[..] else {
                            panic!("{name}: it waits");
                        };
                        assert!(slot.at >= now + SPAN, "{name}: it rests");
                        assert!(lost.doubt(now, &evidence, 0), "{name}: nobody was told");
                        lost.tell();
                        // Whoever knows of the former life has nothing to add.
                        assert!(!lost.doubt(now, &evidence, 0), "{name}");
                    }
                }
                before = ledger.clone();
            });
        }
    }

    #[test]
    fn last_writes_are_missed_even_if_others_were_handed_out_slots_since(steps in steps(60, 1_000_000, 3)) {
        for (name, rules, largest_cost) in rules(1_000_000) {
            let mut before = Ledger::new(&rules);
            take(&rules, largest_cost, &steps, |now, processes, ledger| {
                let older = before.life();
                let missing = |process: &&Process| {
                    let known = process.evidence(now).life;
                    known.zip(older).is_some_and(|(known, older)| {
                        known.start == older.start && older.version < process.granted
                    })
                };
                if let Some(process) = processes.iter().find(missing) {
                    let mut forked = before.clone();
                    for id in 3..3 + MARKS as u32 - 2 {
                        let ask = Ask { count: 1, cost: 1, max_wait: u64::MAX };
                        Process::new(id).ask(&mut forked, &rules, now + 1, 0, &[ask]);
                    }
                    assert!(forked.doubt(now + 1, &process.evidence(now), 0), "{name}");
                }
                before = ledger.clone();
            });
        }
    }

    #[test]
    fn what_comes_back_from_a_former_life_changes_nothing(steps in steps(30, 1_000_000, 3)) {
        for (name, rules, largest_cost) in rules(1_000_000) {
            take(&rules, largest_cost, &steps, |now, processes, ledger| {
                let mut ledger = ledger.clone();
                let before = processes[0].known.map_or(1, |known| known.start);
                let word = super::super::Word::Quarantine { span: SPAN, known: before };
                let notice = ledger.heed(now, word);
                assert!(notice.is_quarantine() && notice.paused == now + SPAN, "{name}");
                let asks = [Ask { count: 2, cost: 1, max_wait: u64::MAX }];
                ledger.reserve(now, &terms(0), &asks);
                let after = ledger.clone();
                ledger.release_under(now, before, &processes[0].held);
                assert_eq!(ledger, after, "{name}");
            });
        }
    }
}

fn log() -> [Rule; 1] {
    [Rule::SlidingLog {
        limit: 2,
        window: 1_000_000,
    }]
}

#[test]
fn a_store_that_was_born_just_now_lets_nothing_depart_for_the_span() {
    let mut ledger = Ledger::new(&log());
    let nothing = Evidence::new(None, SPAN, TOLERANCE);
    assert!(ledger.doubt(START, &nothing, START));
    ledger.tell();
    assert!(!ledger.doubt(START, &nothing, START));
    assert_eq!(ledger.remaining(START, &terms(0)), 0);
    assert_eq!(ledger.remaining(START + SPAN, &terms(0)), 2);
    let mut grown = Ledger::new(&log());
    assert!(!grown.doubt(START + SPAN, &nothing, START));
    assert_eq!(grown.remaining(START + SPAN, &terms(0)), 2);
}

/// Also if nobody is left who knows of it.
#[test]
fn a_clock_that_was_set_back_is_a_loss() {
    let (log, mut ledger) = (log(), Ledger::new(&log()));
    let asks = [Ask {
        count: 3,
        cost: 1,
        max_wait: u64::MAX,
    }];
    let mut first = Process::new(1);
    assert!(!first.ask(&mut ledger, &log, START, 0, &asks));
    let hour = 3_600_000_000;
    let (little, back) = (START - TOLERANCE / 2, START - hour);
    assert!(!first.ask(&mut ledger, &log, little, 0, &asks));
    let mut second = Process::new(2);
    assert!(second.ask(&mut ledger, &log, back, 0, &asks));
    ledger.tell();
    // It rests by the clock as it is, and is a later life all the same.
    let last = second.held.last().unwrap();
    assert_eq!(last.at / 1_000, (back + SPAN + 1_000_000) / 1_000);
    let (before, after) = (first.known.unwrap(), second.known.unwrap());
    assert!(before.start < after.start);
    assert!(!first.ask(&mut ledger, &log, back + 1, 0, &asks));
    assert_eq!(first.known.unwrap().start, after.start);
    assert!(!second.ask(&mut ledger, &log, back + 2, 0, &asks));
}

/// Whoever found it may have been cut off before it could tell.
#[test]
fn a_key_rests_for_the_span_from_when_all_were_told() {
    let mut ledger = Ledger::new(&log());
    let known = Evidence::new(Some(Life::new(START, START)), SPAN, TOLERANCE);
    let nothing = Evidence::new(None, SPAN, TOLERANCE);
    assert!(ledger.doubt(START, &known, 0));
    let life = ledger.life();
    let late = START + SPAN - 1;
    assert!(ledger.doubt(late, &nothing, 0));
    let word = super::super::Word::Quarantine {
        span: SPAN,
        known: START,
    };
    assert!(ledger.heed(late, word).is_quarantine());
    ledger.tell();
    assert_eq!(ledger.life(), life, "it is the same life");
    assert_eq!(ledger.remaining(late + SPAN - 1, &terms(0)), 0);
    assert!(!ledger.doubt(late + SPAN, &nothing, 0));
    assert_eq!(ledger.remaining(late + SPAN, &terms(0)), 2);
}

#[test]
fn of_more_processes_than_are_remembered_nobody_misses_what_is_there() {
    let mut ledger = Ledger::new(&log());
    let mut processes: Vec<_> = (1..=3 * MARKS as u32).map(Process::new).collect();
    let ask = [Ask {
        count: 1,
        cost: 1,
        max_wait: u64::MAX,
    }];
    for turn in 0..200 {
        let count = processes.len();
        let process = &mut processes[turn * 7 % count];
        let now = START + turn as u64;
        assert!(
            !process.ask(&mut ledger, &log(), now, 0, &ask),
            "turn {turn}"
        );
        for process in &processes {
            assert!(!ledger.clone().doubt(now, &process.evidence(now), 0));
        }
    }
}

#[test]
fn nobody_ends_a_rest_by_a_word() {
    let mut ledger = Ledger::new(&log());
    let span = SPAN;
    ledger.heed(START, super::super::Word::Quarantine { span, known: 0 });
    ledger.heed(START, super::super::Word::Resume);
    let notice = ledger.heed(START, super::super::Word::None);
    assert_eq!(notice.paused, START + SPAN);
    assert_eq!(ledger.remaining(START, &terms(0)), 0);
}

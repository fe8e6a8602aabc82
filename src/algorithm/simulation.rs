//! Random histories for tests: what the limiters of several processes may ask of one key.

mod tests;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Rule;
use super::ledger::{Ask, DRIFT, Evidence, Ledger, Notice, Outcome, Slot, Terms, Word};

/// One call, and how much time passes before it.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) advance: i64,
    pub(crate) action: Action,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Reserve {
        margin: u64,
        not_before: NotBefore,
        asks: Vec<Ask>,
    },
    /// Gives back slots that are held, by their place.
    Release { places: Vec<prop::sample::Index> },
    /// Says a word; of a pause, to a request that departed so long ago.
    Heed { word: Word, ago: u64 },
    /// Tells that each quota is influenced for so long, at least, by what was recorded; to a store that was
    /// born so long ago.
    Doubt {
        evidence: [Option<u64>; 8],
        span: u64,
        born: u64,
    },
}

/// The time before which no slot may lie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotBefore {
    /// Any will do.
    Now,
    /// That of the last slot that was handed out: a line's.
    Last,
    /// So much later: a pause.
    After(u64),
}

/// A reserve's answer: outcomes, remaining and reset.
pub(crate) type Answer = (Vec<Outcome>, u32, u64);

/// One side of a comparison.
pub(crate) trait Side {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer;
    fn release(&mut self, now: u64, slots: &[Slot]);
    fn heed(&mut self, now: u64, word: Word) -> Notice;
    fn doubt(&mut self, now: u64, evidence: &Evidence, born: u64) -> bool;
}

impl Side for Ledger {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        let outcomes = Self::reserve(self, now, terms, asks);
        let reset = self.expires().saturating_sub(now);
        (outcomes.into_vec(), self.remaining(now, terms), reset)
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        Self::release(self, now, slots);
    }

    fn heed(&mut self, now: u64, word: Word) -> Notice {
        Self::heed(self, now, word)
    }

    fn doubt(&mut self, now: u64, evidence: &Evidence, born: u64) -> bool {
        Self::doubt(self, now, evidence, born)
    }
}

/// A slot that was handed out and kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) slot: Slot,
    /// How late after it a request may depart, which is as late as its record allows.
    pub(crate) lateness: u64,
    /// By how much the store's clock had been set back until then.
    pub(crate) set_back: u64,
}

/// Calls both sides with the same history and asserts that they answer alike.
pub(crate) fn run(steps: &[Step], left: &mut dyn Side, right: &mut dyn Side) -> Vec<Kept> {
    run_staggered(steps, |margin| margin / 100, left, right)
}

/// The same, with margins that grow by so much, each with its own, within a burst.
pub(crate) fn run_staggered(
    steps: &[Step],
    stagger: impl Fn(u64) -> u64,
    left: &mut dyn Side,
    right: &mut dyn Side,
) -> Vec<Kept> {
    let mut now = 1_763_000_000_000_000_u64;
    let mut held: Vec<Kept> = Vec::new();
    let mut last = 0;
    let mut set_back = 0;
    for (number, step) in steps.iter().enumerate() {
        now = now.saturating_add_signed(step.advance);
        set_back += step.advance.min(0).unsigned_abs();
        match &step.action {
            Action::Reserve {
                margin,
                not_before,
                asks,
            } => {
                let terms = Terms {
                    margin: *margin,
                    least_margin: margin / 3,
                    floor: margin / 2,
                    not_before: match not_before {
                        NotBefore::Now => 0,
                        NotBefore::Last => last,
                        NotBefore::After(pause) => now + pause,
                    },
                    round_trip: margin / 3,
                    stagger: stagger(*margin),
                    peek: false,
                };
                let answer = left.reserve(now, &terms, asks);
                let other = right.reserve(now, &terms, asks);
                assert_eq!(answer, other, "step {number}, {step:?}");
                for outcome in answer.0 {
                    if let Outcome::Granted(slot) = outcome {
                        last = slot.at;
                        held.push(Kept {
                            lateness: slot.record - slot.at - (slot.at - now) / DRIFT,
                            slot,
                            set_back,
                        });
                    }
                }
            }
            Action::Release { places } => {
                let mut slots = Vec::new();
                for place in places.iter().take(held.len()) {
                    slots.push(held.remove(place.index(held.len())).slot);
                }
                left.release(now, &slots);
                right.release(now, &slots);
            }
            Action::Heed { word, ago } => {
                let word = match *word {
                    Word::Pause { span, .. } => Word::Pause {
                        span,
                        departed: now - ago,
                    },
                    word => word,
                };
                let (notice, other) = (left.heed(now, word), right.heed(now, word));
                assert_eq!(notice, other, "step {number}, {step:?}");
            }
            Action::Doubt {
                evidence,
                span,
                born,
            } => {
                let until = evidence
                    .iter()
                    .map(|span| span.map_or(0, |span| now + span));
                let evidence = Evidence {
                    until: until.collect(),
                    span: *span,
                };
                let born = now - born;
                let (is_lost, other) = (
                    left.doubt(now, &evidence, born),
                    right.doubt(now, &evidence, born),
                );
                assert_eq!(is_lost, other, "step {number}, {step:?}");
            }
        }
    }
    held
}

/// Histories of so many steps, in which times are multiples of `unit` or close to them.
pub(crate) fn steps(
    count: usize,
    unit: u64,
    largest_cost: u32,
) -> impl Strategy<Value = Vec<Step>> {
    let some = move |most: u64| (0..=most * 4).prop_map(move |it| it * unit / 4);
    let advance = prop_oneof![
        3 => Just(0),
        3 => some(2).prop_map(u64::cast_signed),
        3 => (0..=unit).prop_map(u64::cast_signed),
        2 => some(20).prop_map(u64::cast_signed),
        1 => (0..=2 * unit).prop_map(|back| -back.cast_signed()),
    ];
    let max_wait = prop_oneof![2 => Just(u64::MAX), 1 => Just(0), 1 => some(8)];
    let ask = (
        1..=6_u32,
        prop_oneof![3 => Just(1), 1 => 1..=largest_cost],
        max_wait,
    )
        .prop_map(|(count, cost, max_wait)| Ask {
            count,
            cost,
            max_wait,
        });
    let margin = prop_oneof![3 => Just(unit / 50), 1 => 0..=unit / 2];
    let not_before = prop_oneof![
        4 => Just(NotBefore::Now),
        4 => Just(NotBefore::Last),
        1 => some(5).prop_map(NotBefore::After),
    ];
    let reserve = (margin, not_before, vec(ask, 1..4));
    let reserve = reserve.prop_map(|(margin, not_before, asks)| Action::Reserve {
        margin,
        not_before,
        asks,
    });
    let action = prop_oneof![
        3 => reserve,
        2 => vec(any::<prop::sample::Index>(), 1..6).prop_map(|places| Action::Release { places }),
    ];
    vec(
        (advance, action).prop_map(|(advance, action)| Step { advance, action }),
        count,
    )
}

/// The same, where now and then a word is said.
pub(crate) fn steps_with_words(
    count: usize,
    unit: u64,
    largest_cost: u32,
) -> impl Strategy<Value = Vec<Step>> {
    let span = || (0..=24_u64).prop_map(move |quarters| quarters * unit / 4);
    let word = prop_oneof![
        1 => Just(Word::None),
        3 => span().prop_map(|span| Word::Pause { span, departed: 0 }),
        4 => (0..=9_u32, span()).prop_map(|(left, span)| Word::Allow { left, span }),
        1 => Just(Word::Resume),
        1 => span().prop_map(|span| Word::Quarantine { span }),
    ];
    let heed = (word, span()).prop_map(|(word, ago)| Action::Heed { word, ago });
    let known = prop_oneof![2 => Just(None), 1 => span().prop_map(Some)];
    let doubt = (prop::array::uniform8(known), span(), span());
    let doubt = doubt.prop_map(|(evidence, span, born)| Action::Doubt {
        evidence,
        span,
        born,
    });
    let heed = prop_oneof![3 => heed, 1 => doubt];
    let advance = (0..=unit).prop_map(u64::cast_signed);
    let said = (advance, heed).prop_map(|(advance, action)| Step { advance, action });
    let others = steps(count, unit, largest_cost);
    (
        others,
        vec((any::<prop::sample::Index>(), said), 0..=count / 5),
    )
        .prop_map(|(mut steps, said)| {
            for (place, step) in said {
                steps.insert(place.index(steps.len()), step);
            }
            steps
        })
}

/// Windows of almost one length, so far out of step that no departure fits into all of them if its
/// margin is large.
pub(crate) const SELDOM_TOGETHER: &str = "windows that are seldom open together";

/// Rules of one kind or several, each with the most that one request may cost.
pub(crate) fn rules(unit: u64) -> Vec<(&'static str, Vec<Rule>, u32)> {
    let log = |limit, windows| Rule::SlidingLog {
        limit,
        window: windows * unit,
    };
    let spacing = Rule::Spacing {
        interval: unit / 3 + 1,
    };
    let gcra = |burst: u64| Rule::Gcra {
        interval: unit / 7 + 1,
        tolerance: (burst - 1) * (unit / 7 + 1),
    };
    let buckets = |limit, windows, buckets| Rule::SlidingBuckets {
        limit,
        window: windows * unit,
        width: windows * unit / buckets + 1,
    };
    let leaky = Rule::LeakyBucket {
        interval: unit / 5 + 1,
        capacity: 6,
    };
    let fixed = |limit, windows, aligned| Rule::FixedWindow {
        limit,
        window: windows * unit,
        aligned,
    };
    let seldom_together = [0, 28, 39].map(|more| Rule::FixedWindow {
        limit: 4,
        window: unit + more,
        aligned: true,
    });
    vec![
        ("log", vec![log(5, 1)], 5),
        ("log of one", vec![log(1, 1)], 1),
        ("longer log", vec![log(300, 10)], 300),
        ("spacing", vec![spacing], 3),
        ("gcra", vec![gcra(4)], 4),
        ("gcra without a burst", vec![gcra(1)], 1),
        ("two logs", vec![log(3, 1), log(20, 10)], 3),
        ("buckets", vec![buckets(5, 1, 4)], 5),
        ("one bucket", vec![buckets(3, 2, 1)], 3),
        ("many buckets", vec![buckets(300, 10, 70)], 300),
        ("leaky bucket", vec![leaky], 3),
        ("fixed windows", vec![fixed(5, 1, true)], 5),
        (
            "windows from the first request",
            vec![fixed(5, 1, false)],
            5,
        ),
        (
            "short windows",
            vec![Rule::FixedWindow {
                limit: 2,
                window: unit / 60,
                aligned: true,
            }],
            2,
        ),
        (
            "two fixed windows",
            vec![fixed(4, 1, true), fixed(9, 3, false)],
            4,
        ),
        (
            "shorter windows than their margin",
            vec![Rule::FixedWindow {
                limit: 6,
                window: unit / 60,
                aligned: true,
            }],
            6,
        ),
        (
            "such from the first request",
            vec![Rule::FixedWindow {
                limit: 6,
                window: unit / 60,
                aligned: false,
            }],
            6,
        ),
        (
            "shorter log than its margin",
            vec![Rule::SlidingLog {
                limit: 3,
                window: unit / 60,
            }],
            3,
        ),
        (
            "shorter buckets than their margin",
            vec![Rule::SlidingBuckets {
                limit: 4,
                window: unit / 60,
                width: unit / 240 + 1,
            }],
            4,
        ),
        (
            "gcra of less than its margin",
            vec![Rule::Gcra {
                interval: unit / 200 + 1,
                tolerance: 4 * (unit / 200 + 1),
            }],
            5,
        ),
        (
            "windows and a log",
            vec![fixed(7, 3, true), log(3, 1), fixed(4, 1, false)],
            3,
        ),
        (
            "gcra and windows",
            vec![gcra(12), fixed(5, 1, true), fixed(9, 4, false)],
            5,
        ),
        (SELDOM_TOGETHER, seldom_together.to_vec(), 4),
        (
            "three that let bursts go",
            vec![log(5, 1), gcra(4), spacing, log(30, 12)],
            4,
        ),
        (
            "all",
            vec![
                log(5, 1),
                buckets(20, 6, 10),
                leaky,
                fixed(6, 1, true),
                gcra(4),
            ],
            4,
        ),
    ]
}

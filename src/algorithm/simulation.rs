//! Random histories for tests: what the limiters of several processes may ask of one key.

mod tests;

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Rule;
use super::ledger::{Ask, DRIFT, Evidence, Ledger, Life, Notice, Outcome, Slot, Terms, Word};

/// No fewer quotas than any of [`rules`] joins.
const MOST_JOINED: usize = 8;

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
    /// The same, that were handed out under this life.
    ReleaseUnder {
        known: Known,
        places: Vec<prop::sample::Index>,
    },
    /// Says a word; of a pause, to a request that departed so long ago; of a quarantine, as this life is lost.
    Heed { word: Word, ago: u64, known: Known },
    /// Asks with evidence of this life: the last that it was told, if any, or one that differs; of a store
    /// that was born so long ago, and may just have lost what stands aside, and these quotas' states.
    Strict {
        lost: Option<(bool, [bool; MOST_JOINED])>,
        known: Known,
        /// Which process asks.
        process: u32,
        span: u64,
        tolerance: u64,
        born: u64,
        asks: Vec<Ask>,
    },
}

/// Which life is known.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    None,
    Last,
    /// The one before.
    Former,
    /// The last, of a version that is not there yet.
    Later,
    /// One that began later.
    Another,
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

    /// Reserves with evidence; also tells whether the state is lost, and the life.
    fn reserve_strictly(
        &mut self,
        _now: u64,
        _terms: &Terms,
        _asks: &[Ask],
        _evidence: &Evidence,
        _born: u64,
    ) -> (Answer, bool, Life) {
        unreachable!("it knows of no lives")
    }

    /// Gives back slots that were handed out under this life.
    fn release_under(&mut self, _now: u64, _life: u64, _slots: &[Slot]) {
        unreachable!("it knows of no lives")
    }

    fn lose(&mut self, _aside: bool, _quotas: &[bool]) {
        unreachable!("it loses nothing")
    }
}

impl Side for Ledger {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        let outcomes = Self::reserve(self, now, terms, asks);
        let reset = self.expires().saturating_sub(now);
        (outcomes.into_vec(), self.remaining(now, terms), reset)
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        Side::release_under(self, now, 0, slots);
    }

    fn heed(&mut self, now: u64, word: Word) -> Notice {
        heed_and_tell(self, now, word)
    }

    fn reserve_strictly(
        &mut self,
        now: u64,
        terms: &Terms,
        asks: &[Ask],
        evidence: &Evidence,
        born: u64,
    ) -> (Answer, bool, Life) {
        let is_lost = self.doubt(now, evidence, born);
        let answer = Side::reserve(self, now, terms, asks);
        (answer, is_lost, self.life().unwrap())
    }

    fn release_under(&mut self, now: u64, life: u64, slots: &[Slot]) {
        Self::release_under(self, now, life, slots);
    }

    fn lose(&mut self, aside: bool, quotas: &[bool]) {
        Self::lose(self, aside, quotas);
    }
}

/// As the scripts do, which tell all there and then.
pub(crate) fn heed_and_tell(ledger: &mut Ledger, now: u64, word: Word) -> Notice {
    let notice = ledger.heed(now, word);
    if notice.is_quarantine() {
        ledger.tell();
    }
    notice
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
    let mut lives: Vec<Life> = Vec::new();
    let mut marks: HashMap<u32, Life> = HashMap::new();
    for (number, step) in steps.iter().enumerate() {
        now = now.saturating_add_signed(step.advance);
        set_back += step.advance.min(0).unsigned_abs();
        let terms = |margin: u64, not_before| Terms {
            margin,
            least_margin: margin / 3,
            floor: margin / 2,
            not_before,
            round_trip: margin / 3,
            stagger: stagger(margin),
            peek: false,
        };
        let last_slot = last;
        let mut keep = |outcomes| {
            for outcome in outcomes {
                if let Outcome::Granted(slot) = outcome {
                    last = slot.at;
                    held.push(Kept {
                        lateness: slot.record - slot.at - (slot.at - now) / DRIFT,
                        slot,
                        set_back,
                    });
                }
            }
        };
        match &step.action {
            Action::Reserve {
                margin,
                not_before,
                asks,
            } => {
                let not_before = match not_before {
                    NotBefore::Now => 0,
                    NotBefore::Last => last_slot,
                    NotBefore::After(pause) => now + pause,
                };
                let terms = terms(*margin, not_before);
                let answer = left.reserve(now, &terms, asks);
                let other = right.reserve(now, &terms, asks);
                assert_eq!(answer, other, "step {number}, {step:?}");
                keep(answer.0);
            }
            Action::Release { places } => {
                let slots = chosen(&mut held, places);
                left.release(now, &slots);
                right.release(now, &slots);
            }
            Action::ReleaseUnder { known, places } => {
                let slots = chosen(&mut held, places);
                let life = known.of(&lives).map_or(0, |life| life.start);
                left.release_under(now, life, &slots);
                right.release_under(now, life, &slots);
            }
            Action::Heed { word, ago, known } => {
                let word = match *word {
                    Word::Pause { span, .. } => Word::Pause {
                        span,
                        departed: now - ago,
                    },
                    Word::Quarantine { span, .. } => Word::Quarantine {
                        span,
                        known: known.of(&lives).map_or(0, |life| life.start),
                    },
                    word => word,
                };
                let (notice, other) = (left.heed(now, word), right.heed(now, word));
                assert_eq!(notice, other, "step {number}, {step:?}");
            }
            Action::Strict {
                lost,
                known,
                process,
                span,
                tolerance,
                born,
                asks,
            } => {
                if let Some((aside, quotas)) = lost {
                    left.lose(*aside, quotas);
                    right.lose(*aside, quotas);
                }
                let life = known.of(&lives);
                let granted = marks
                    .get(process)
                    .filter(|it| life.is_some_and(|life| life.start == it.start));
                let evidence = Evidence::new(life, *span, *tolerance);
                let evidence = evidence.of_process(*process, granted.map_or(0, |it| it.version));
                let (terms, born) = (terms(10_000, 0), now - born);
                let answer = left.reserve_strictly(now, &terms, asks, &evidence, born);
                let other = right.reserve_strictly(now, &terms, asks, &evidence, born);
                assert_eq!(answer, other, "step {number}, {step:?}, {evidence:?}");
                let (answer, _, life) = answer;
                if answer.0.iter().any(|it| matches!(it, Outcome::Granted(_))) {
                    marks.insert(*process, life);
                }
                keep(answer.0);
                lives.push(life);
            }
        }
    }
    held
}

/// Takes some of the slots that are held.
fn chosen(held: &mut Vec<Kept>, places: &[prop::sample::Index]) -> Vec<Slot> {
    let mut slots = Vec::new();
    for place in places.iter().take(held.len()) {
        slots.push(held.remove(place.index(held.len())).slot);
    }
    slots
}

impl Known {
    fn of(self, lives: &[Life]) -> Option<Life> {
        let last = *lives.last()?;
        match self {
            Self::None => None,
            Self::Last => Some(last),
            Self::Former => lives
                .iter()
                .rev()
                .find(|it| it.start != last.start)
                .copied(),
            Self::Later => Some(Life::new(last.start, last.version + 1)),
            Self::Another => Some(Life::new(last.start + 1, last.version + 1)),
        }
    }
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
        1 => span().prop_map(|span| Word::Quarantine { span, known: 0 }),
    ];
    let known = || {
        prop_oneof![
            2 => Just(Known::None),
            12 => Just(Known::Last),
            2 => Just(Known::Former),
            1 => Just(Known::Later),
            1 => Just(Known::Another),
        ]
    };
    let heed = (word, span(), known());
    let heed = heed.prop_map(|(word, ago, known)| Action::Heed { word, ago, known });
    let ask = (1..=3_u32, prop_oneof![2 => Just(u64::MAX), 1 => Just(0)]);
    let asks = ask.prop_map(|(count, max_wait)| Ask {
        count,
        cost: 1,
        max_wait,
    });
    let lost = proptest::option::weighted(0.2, any::<(bool, [bool; MOST_JOINED])>());
    // More than are remembered.
    let process = prop_oneof![4 => 0..3_u32, 1 => 3..12_u32];
    let strict = (
        lost,
        known(),
        process,
        span(),
        span(),
        span(),
        vec(asks, 0..3),
    );
    let strict =
        strict.prop_map(
            |(lost, known, process, span, tolerance, born, asks)| Action::Strict {
                lost,
                known,
                process,
                span,
                tolerance,
                born,
                asks,
            },
        );
    let release = (known(), vec(any::<prop::sample::Index>(), 1..6));
    let release = release.prop_map(|(known, places)| Action::ReleaseUnder { known, places });
    let heed = prop_oneof![3 => heed, 3 => strict, 1 => release];
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

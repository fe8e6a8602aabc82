//! Each algorithm against its model.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::ledger::Receipt;
use super::super::simulation::rules;
use super::super::{Count, Counter, Rule, Taken};
use super::model::Model;

/// Small, so that times often coincide.
const UNIT: u64 = 120;

#[derive(Debug, Clone)]
enum Op {
    Advance(i64),
    /// To the very moment at which one more may depart, or the state expires, or to just before.
    AdvanceTo {
        expiry: bool,
        just_before: bool,
    },
    /// Takes a slot not before so much later, recorded so much after it.
    Take {
        ahead: u64,
        margin: u64,
        cost: u32,
    },
    GiveBack(prop::sample::Index),
    /// Trims the state that is trimmed only then.
    Trim,
    Ask {
        ahead: u64,
        late: u64,
        cost: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let advance = prop_oneof![
        4 => 0..=UNIT.cast_signed() / 3,
        2 => Just(UNIT.cast_signed()),
        1 => 0..=12 * UNIT.cast_signed(),
        1 => -UNIT.cast_signed()..=0,
    ];
    let ahead = || prop_oneof![6 => Just(0), 2 => 0..=UNIT, 1 => 0..=6 * UNIT];
    let late = || {
        prop_oneof![
            3 => Just(UNIT / 50),
            2 => 0..=UNIT / 2,
            1 => UNIT / 2 - 1..=UNIT / 2 + 1,
            1 => UNIT / 2..=3 * UNIT,
        ]
    };
    let cost = || prop_oneof![3 => Just(1_u32), 2 => 1..=6_u32, 1 => 1..=300_u32];
    prop_oneof![
        3 => advance.prop_map(Op::Advance),
        1 => any::<(bool, bool)>()
            .prop_map(|(expiry, just_before)| Op::AdvanceTo { expiry, just_before }),
        6 => (ahead(), late(), cost())
            .prop_map(|(ahead, margin, cost)| Op::Take { ahead, margin, cost }),
        4 => any::<prop::sample::Index>().prop_map(Op::GiveBack),
        1 => Just(Op::Trim),
        2 => (ahead(), late(), cost())
            .prop_map(|(ahead, late, cost)| Op::Ask { ahead, late, cost }),
    ]
}

/// Every rule there is, alone, and the most that one request may cost.
fn each_rule() -> Vec<(Rule, u32)> {
    let most = |rule: &Rule| match *rule {
        Rule::SlidingLog { limit, .. }
        | Rule::SlidingBuckets { limit, .. }
        | Rule::FixedWindow { limit, .. } => limit,
        Rule::Spacing { .. } | Rule::LeakyBucket { .. } => 4,
        Rule::Gcra {
            interval,
            tolerance,
        } => u32::try_from(tolerance / interval + 1).unwrap(),
    };
    let mut all = Vec::new();
    for (_, rules, _) in rules(UNIT) {
        for rule in rules {
            if all.iter().all(|(known, _)| *known != rule) {
                all.push((rule, most(&rule)));
            }
        }
    }
    all
}

struct Held {
    id: usize,
    taken: Taken,
    receipt: Receipt,
}

/// A count beside its model, and beside itself trimmed at other times.
struct Pair {
    now: u64,
    count: Counter,
    /// Trimmed at random times; none where the clock is set back, as records then need not grow.
    seldom_trimmed: Option<Counter>,
    model: Model,
    held: Vec<Held>,
    ids: usize,
}

impl Pair {
    fn new(rule: Rule, is_set_back: bool) -> Self {
        let start = 1_763_000_000_000_000;
        Self {
            now: start,
            count: rule.start(),
            seldom_trimmed: (!is_set_back).then(|| rule.start()),
            model: Model::new(rule),
            held: Vec::new(),
            ids: 0,
        }
    }

    fn earliest(&self, x: u64, late: u64, cost: u32) -> u64 {
        let earliest = self.count.earliest(x, late, cost);
        let expected = self.model.earliest(x, late, cost);
        assert_eq!(earliest, expected, "earliest({x}, {late}, {cost})");
        if let Some(other) = &self.seldom_trimmed {
            assert_eq!(other.earliest(x, late, cost), expected);
        }
        earliest
    }

    fn apply(&mut self, op: &Op, most: u32) {
        match *op {
            Op::Advance(by) => self.now = self.now.saturating_add_signed(by),
            Op::AdvanceTo {
                expiry,
                just_before,
            } => {
                let time = if expiry {
                    self.model.expires()
                } else {
                    self.model.earliest(self.now, 0, 1)
                };
                self.now = self.now.max(time.saturating_sub(just_before.into()));
            }
            Op::Take {
                ahead,
                margin,
                cost,
            } => self.take(self.now + ahead, margin, cost.min(most)),
            Op::GiveBack(place) if !self.held.is_empty() => {
                let place = place.index(self.held.len());
                self.give_back(place);
            }
            Op::GiveBack(_) => {}
            Op::Trim => {
                if let Some(other) = &mut self.seldom_trimmed {
                    other.trim(self.now);
                }
            }
            Op::Ask { ahead, late, cost } => {
                self.earliest(self.now + ahead, late, cost.min(most));
            }
        }
    }

    fn take(&mut self, x: u64, margin: u64, cost: u32) {
        let mut at = x;
        let record = loop {
            let record = (at + margin).max(self.count.last_record());
            let earliest = self.earliest(at, record - at, cost);
            if earliest == at {
                break record;
            }
            at = earliest;
        };
        let taken = Taken { at, record, cost };
        let receipt = self.count.take(taken);
        assert_eq!(receipt.as_slice().len(), self.count.receipts());
        if let Some(other) = &mut self.seldom_trimmed {
            other.take(taken);
        }
        self.model.take(self.ids, taken);
        let id = self.ids;
        self.held.push(Held { id, taken, receipt });
        self.ids += 1;
    }

    /// As the ledger does: what is yet to come leaves only if it is the last. (What had left its
    /// window before the clock was set back stays out: another record may be the same now.)
    fn give_back(&mut self, place: usize) {
        let Held { id, taken, receipt } = &self.held[place];
        let receipt = receipt.as_slice();
        if taken.at > self.now && !self.model.is_last(*id) || self.model.has_forgotten(*id) {
            return;
        }
        let counts = [Some(&mut self.count), self.seldom_trimmed.as_mut()];
        for count in counts.into_iter().flatten() {
            count.give_back(*taken, receipt, self.now);
        }
        self.model.give_back(*id);
        self.held.remove(place);
    }

    fn check(&mut self) {
        let now = self.now;
        self.count.trim(now);
        self.model.observe(now);
        let count = &self.count;
        for Held { id, taken, receipt } in &self.held {
            if !self.model.has_forgotten(*id) {
                let is_last = count.is_last(*taken, receipt.as_slice());
                assert_eq!(is_last, self.model.is_last(*id), "is_last of {taken:?}");
            }
        }
        // No departure is recorded before the last one.
        let least = count.last_record().saturating_sub(now);
        for late in [0, 1, 11, 59, 60, 61, 130].map(|late| least.max(late)) {
            assert_eq!(
                count.remaining(now, late),
                self.model.remaining(now, late),
                "remaining at {now}, {late} late"
            );
        }
        assert_eq!(count.expires(), self.model.expires(), "expires");
        assert_eq!(count.last_record(), self.model.last_record(), "last record");
    }
}

fn compare(ops: &[Op], is_set_back: bool) {
    for (rule, most) in each_rule() {
        let mut pair = Pair::new(rule, is_set_back);
        for (step, op) in ops.iter().enumerate() {
            let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pair.apply(op, most);
                pair.check();
            }));
            assert!(attempt.is_ok(), "{rule:?} at step {step} of {ops:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn every_count_answers_like_its_model(mut ops in vec(op(), 1..50)) {
        for op in &mut ops {
            if let Op::Advance(by) = op {
                *by = by.abs();
            }
        }
        compare(&ops, false);
    }

    #[test]
    fn every_count_answers_like_its_model_on_a_clock_that_is_set_back(ops in vec(op(), 1..50)) {
        compare(&ops, true);
    }
}

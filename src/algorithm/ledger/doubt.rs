//! A state that cannot be what it was.

use smallvec::SmallVec;

use super::super::hold::{Hold, Kind};
use super::super::{Count, Rule};
use super::Ledger;

/// What a process knows of a key that its store has to know as well, unless it has lost it.
///
/// Slots that this process holds, or has used, and has not given back: their quotas count them for some
/// time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Evidence {
    /// Until when each quota of the policy, in the order of its [`id`](crate::Policy::id), is influenced by
    /// what it has recorded, at least; in microseconds on the store's clock, 0 if nothing is known.
    pub until: SmallVec<[u64; 2]>,
    /// How long nothing may depart if that is not so, in microseconds: until whatever departed before
    /// counts no longer.
    pub span: u64,
}

impl Evidence {
    /// Nothing, of so many quotas.
    pub(crate) fn none(quotas: usize, span: u64) -> Self {
        Self {
            until: SmallVec::from_elem(0, quotas),
            span,
        }
    }

    /// The same, of so many quotas.
    #[cfg(test)]
    pub(crate) fn of(&self, quotas: usize) -> Self {
        Self {
            until: self.until[..quotas].into(),
            span: self.span,
        }
    }

    /// A slot that was handed out and not given back.
    pub(crate) fn add(&mut self, rules: &[Rule], at: u64, record: u64) {
        for (until, rule) in self.until.iter_mut().zip(rules) {
            *until = rule.counts_until(at, record).max(*until);
        }
    }
}

impl Ledger {
    /// Whether the state lacks something of which there is evidence, or is one of a store that knows of
    /// nothing before `born`. If so, nothing departs for the span, and what is lacking is no longer missed.
    pub(crate) fn doubt(&mut self, now: u64, evidence: &Evidence, born: u64) -> bool {
        self.refresh(now);
        let pause = self.hold(Kind::Pause).map_or(0, |pause| pause.until);
        let from = now.max(pause);
        let counters = self.counters.iter().filter(|counter| !counter.is_hold());
        let mut known = counters.zip(&evidence.until);
        let is_lost = known.any(|(counter, &until)| until > from && counter.expires() < until);
        let since = if is_lost { now } else { born.min(now) };
        let until = since + evidence.span;
        if until <= from {
            return false;
        }
        if is_lost {
            self.clear();
        }
        self.rest(now, until);
        true
    }

    /// Forgets everything, and lets nothing depart for so long.
    pub(super) fn quarantine(&mut self, now: u64, until: u64) -> u64 {
        self.clear();
        let pause = self.hold(Kind::Pause).map_or(0, |pause| pause.until);
        if until.max(pause) > now {
            self.rest(now, until.max(pause));
        }
        super::heed::EVERYTHING
    }

    fn rest(&mut self, now: u64, until: u64) {
        self.set(Hold {
            kind: Kind::Pause,
            until,
            since: now,
            left: 0,
        });
    }

    fn clear(&mut self) {
        self.counters.iter_mut().for_each(Count::clear);
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::simulation::{Action, Step, rules, steps};
    use super::super::{Ask, Outcome, Slot, Terms};
    use super::*;

    const START: u64 = 1_763_000_000_000_000;
    const SPAN: u64 = 3_000_000;

    fn terms(margin: u64) -> Terms {
        Terms {
            margin,
            least_margin: margin / 3,
            floor: margin / 2,
            not_before: 0,
            round_trip: 0,
            stagger: 0,
            peek: false,
        }
    }

    /// Takes all steps; after each, what is held, and the ledger.
    fn take(
        rules: &[Rule],
        largest_cost: u32,
        steps: &[Step],
        mut look: impl FnMut(u64, &[Slot], &Ledger),
    ) {
        let (mut now, mut held) = (START, Vec::<Slot>::new());
        let mut ledger = Ledger::new(rules);
        for step in steps {
            now += step.advance.unsigned_abs();
            match &step.action {
                Action::Reserve { margin, asks, .. } => {
                    let mut asks = asks.clone();
                    asks.iter_mut()
                        .for_each(|ask| ask.cost = ask.cost.min(largest_cost));
                    let outcomes = ledger.reserve(now, &terms(*margin), &asks);
                    held.extend(outcomes.into_iter().filter_map(|outcome| match outcome {
                        Outcome::Granted(slot) => Some(slot),
                        Outcome::Refused { .. } => None,
                    }));
                }
                Action::Release { places } => {
                    let mut back = Vec::new();
                    for place in places.iter().take(held.len()) {
                        back.push(held.remove(place.index(held.len())));
                    }
                    ledger.release(now, &back);
                }
                Action::Heed { .. } | Action::Doubt { .. } => {}
            }
            look(now, &held, &ledger);
        }
    }

    fn evidence(rules: &[Rule], held: &[Slot]) -> Evidence {
        let mut evidence = Evidence::none(rules.len(), SPAN);
        for slot in held {
            evidence.add(rules, slot.at, slot.record);
        }
        evidence
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn what_is_held_or_was_used_is_never_missed(steps in steps(60, 1_000_000, 3)) {
            for (name, rules, largest_cost) in rules(1_000_000) {
                take(&rules, largest_cost, &steps, |now, held, ledger| {
                    let evidence = evidence(&rules, held);
                    let is_lost = ledger.clone().doubt(now, &evidence, 0);
                    assert!(!is_lost, "{name}: {evidence:?} at {now} of {held:?}");
                });
            }
        }

        #[test]
        fn what_still_counts_is_missed_where_it_is_lost(steps in steps(30, 1_000_000, 3)) {
            for (name, rules, largest_cost) in rules(1_000_000) {
                take(&rules, largest_cost, &steps, |now, held, _| {
                    let evidence = evidence(&rules, held);
                    let counts = evidence.until.iter().any(|&until| until > now);
                    let mut lost = Ledger::new(&rules);
                    assert_eq!(lost.doubt(now, &evidence, 0), counts, "{name}");
                    if counts {
                        let ask = Ask { count: 1, cost: 1, max_wait: u64::MAX };
                        let outcomes = lost.reserve(now, &terms(0), &[ask]);
                        let [Outcome::Granted(slot)] = &outcomes[..] else {
                            panic!("{name}: it waits");
                        };
                        assert!(slot.at >= now + SPAN);
                        // Whoever missed it as well has nothing to add.
                        assert!(!lost.doubt(now, &evidence, 0));
                    }
                });
            }
        }
    }

    #[test]
    fn a_store_that_was_born_just_now_lets_nothing_depart_for_the_span() {
        let rules = [Rule::SlidingLog {
            limit: 2,
            window: 1_000_000,
        }];
        let mut ledger = Ledger::new(&rules);
        let nothing = Evidence::none(1, SPAN);
        assert!(ledger.doubt(START, &nothing, START));
        assert!(!ledger.doubt(START, &nothing, START));
        assert_eq!(ledger.remaining(START, &terms(0)), 0);
        assert_eq!(ledger.remaining(START + SPAN, &terms(0)), 2);
        let mut grown = Ledger::new(&rules);
        assert!(!grown.doubt(START + SPAN, &nothing, START));
        // If the clock was set back since, the birth was now.
        assert!(grown.doubt(START - SPAN, &nothing, START));
        assert!(!grown.doubt(START, &nothing, START - SPAN));
    }
}

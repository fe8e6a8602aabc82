use std::time::Duration;

use super::*;
use crate::test_util::history::History;

const UNIT: u64 = 1_000_000;

/// When each request departs, on a clock that is never set: at any time that its slot and its
/// guard allow.
fn departures(kept: &[Kept], lateness: &[u64]) -> Vec<(u64, u32)> {
    let late = lateness.iter().cycle();
    let depart = |(kept, late): (&Kept, &u64)| {
        let at = kept.slot.at + kept.set_back + late % (kept.lateness + 1);
        (at, kept.slot.cost)
    };
    let mut departures: Vec<_> = kept.iter().zip(late).map(depart).collect();
    departures.sort_unstable();
    departures
}

fn history(departures: &[(u64, u32)]) -> History {
    let mut history = History::new();
    for &(at, cost) in departures {
        history.push_weighted(Duration::from_micros(at), cost.into());
    }
    history
}

fn check(rule: &Rule, departures: &[(u64, u32)], was_set_back: bool) {
    match *rule {
        Rule::SlidingLog { limit, window } | Rule::SlidingBuckets { limit, window, .. } => {
            history(departures).assert_at_most(limit.into(), Duration::from_micros(window));
        }
        Rule::FixedWindow {
            limit,
            window,
            aligned,
        } => {
            let twice = u64::from(limit) * 2;
            history(departures).assert_at_most(twice, Duration::from_micros(window));
            if aligned && !was_set_back {
                for same in departures.chunk_by(|a, b| a.0 / window == b.0 / window) {
                    let count: u32 = same.iter().map(|(_, cost)| cost).sum();
                    assert!(count <= limit, "{count} in the window of {same:?}");
                }
            }
        }
        Rule::Spacing { interval } | Rule::LeakyBucket { interval, .. } => {
            for pair in departures.windows(2) {
                let gap = pair[1].0 - pair[0].0;
                assert!(gap >= interval * u64::from(pair[0].1), "{pair:?}");
            }
        }
        Rule::Gcra {
            interval,
            tolerance,
        } => {
            for (place, first) in departures.iter().enumerate() {
                let mut count = 0;
                for last in &departures[place..] {
                    count += u64::from(last.1);
                    let span = last.0 - first.0;
                    assert!(
                        (count - 1) * interval <= span + tolerance,
                        "{first:?} {last:?}"
                    );
                }
            }
        }
    }
}

fn check_all(steps: &[Step], lateness: &[u64]) {
    for (_, rules, largest_cost) in rules(UNIT) {
        let mut steps = steps.to_vec();
        for step in &mut steps {
            if let Action::Reserve { asks, .. } = &mut step.action {
                asks.iter_mut()
                    .for_each(|ask| ask.cost = ask.cost.min(largest_cost));
            }
        }
        let kept = run(&steps, &mut Ledger::new(&rules), &mut Ledger::new(&rules));
        let departures = departures(&kept, lateness);
        let was_set_back = kept.iter().any(|kept| kept.set_back > 0);
        for rule in &rules {
            check(rule, &departures, was_set_back);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_history_breaks_the_bound(
        mut steps in steps(120, UNIT, 3),
        lateness in vec(any::<u64>(), 1..50),
    ) {
        steps.iter_mut().for_each(|step| step.advance = step.advance.abs());
        check_all(&steps, &lateness);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_break_the_bound(
        mut steps in steps(120, UNIT, 3),
        lateness in vec(any::<u64>(), 1..50),
    ) {
        // Of slots that were given back before, the times are of the clock as it was: that they are
        // offered at them still is a limit that the documentation of the stores names.
        steps.retain(|step| matches!(step.action, Action::Reserve { .. }));
        check_all(&steps, &lateness);
    }
}

#[test]
fn the_drift_of_clocks_is_within_what_is_recorded() {
    let mut ledger = Ledger::new(&[Rule::Spacing { interval: UNIT }]);
    let ask = Ask {
        count: 100,
        cost: 1,
        max_wait: u64::MAX,
    };
    let terms = Terms::of_margin(10);
    for outcome in ledger.reserve(UNIT, &terms, &[ask]) {
        let Outcome::Granted(slot) = outcome else {
            panic!("refused");
        };
        assert_eq!(slot.record, slot.at + 10 + (slot.at - UNIT) / DRIFT);
    }
}

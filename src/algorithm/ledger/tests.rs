use super::*;

const LOG: Rule = Rule::SlidingLog {
    limit: 2,
    window: 1_000,
};
const SPACING: Rule = Rule::Spacing { interval: 100 };

fn ask(count: u32, cost: u32) -> Ask {
    Ask {
        count,
        cost,
        max_wait: u64::MAX,
    }
}

fn slots(ledger: &mut Ledger, now: u64, asks: &[Ask]) -> Vec<Slot> {
    let outcomes = ledger.reserve(now, &Terms::of_margin(10), asks).into_iter();
    let slot = |outcome| match outcome {
        Outcome::Granted(slot) => slot,
        Outcome::Refused { wait } => panic!("refused, with a wait of {wait}"),
    };
    outcomes.map(slot).collect()
}

fn times(slots: &[Slot]) -> Vec<u64> {
    slots.iter().map(|slot| slot.at).collect()
}

#[test]
fn quotas_hold_jointly() {
    let mut ledger = Ledger::new(&[LOG, SPACING]);
    let slots = slots(&mut ledger, 5_000, &[ask(4, 1)]);
    assert_eq!(times(&slots), [5_000, 5_110, 6_010, 6_120]);
}

#[test]
fn a_window_is_used_to_its_end_by_those_who_wait_for_another_quota() {
    let log = Rule::SlidingLog {
        limit: 1,
        window: 1_000,
    };
    let windows = Rule::FixedWindow {
        limit: 9,
        window: 10_000,
        aligned: true,
    };
    let mut ledger = Ledger::new(&[log, windows]);
    let held = slots(&mut ledger, 5_000, &[ask(4, 1)]);
    assert_eq!(times(&held), [5_000, 6_010, 7_020, 8_030]);
    let next = slots(&mut ledger, 5_001, &[ask(1, 1)]);
    assert_eq!(times(&next), [9_040]);
}

#[test]
fn a_leaky_bucket_holds_as_many_during_a_pause() {
    let rule = Rule::LeakyBucket {
        interval: 1_000_000,
        capacity: 3,
    };
    for span in [1_000, 300_000_000, 86_400_000_000] {
        let mut ledger = Ledger::new(&[rule]);
        let departed = u64::MAX;
        let pause = ledger.heed(5_000, Word::Pause { span, departed });
        let outcomes = ledger.reserve(5_000, &Terms::of_margin(10), &[ask(6, 1)]);
        let granted = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Granted(slot) if slot.at >= pause.paused));
        assert_eq!(granted.count(), 4, "a pause of {span} us");
    }
}

#[test]
fn a_quota_that_refuses_leaves_no_other_charged() {
    let mut ledger = Ledger::new(&[LOG, SPACING]);
    slots(&mut ledger, 5_000, &[ask(2, 1)]);
    let before = ledger.clone();
    let patient = Ask {
        max_wait: 900,
        ..ask(1, 1)
    };
    let outcomes = ledger.reserve(5_050, &Terms::of_margin(10), &[patient]);
    assert_eq!(outcomes[..], [Outcome::Refused { wait: 960 }]);
    assert_eq!(ledger, before);
}

#[test]
fn slots_given_back_from_the_end_leave_no_trace() {
    let mut ledger = Ledger::new(&[LOG, SPACING]);
    slots(&mut ledger, 5_000, &[ask(2, 1)]);
    let before = ledger.clone();
    let mut held = slots(&mut ledger, 5_001, &[ask(6, 1)]);
    for place in [3, 0, 0, 2, 0, 0] {
        let slot = held.remove(place);
        ledger.release(5_002, &[slot]);
    }
    assert_eq!(ledger, before);
}

#[test]
fn slots_of_one_time_leave_in_any_order() {
    let mut ledger = Ledger::new(&[LOG, SPACING]);
    slots(&mut ledger, 5_000, &[ask(2, 1)]);
    let before = ledger.clone();
    let mut held = slots(&mut ledger, 5_001, &[ask(1, 1)]);
    for outcome in ledger.reserve(5_002, &Terms::of_margin(20), &[ask(1, 1)]) {
        if let Outcome::Granted(slot) = outcome {
            held.push(slot);
        }
    }
    held.extend(slots(&mut ledger, 5_003, &[ask(1, 2)]));
    for place in [1, 0, 0] {
        ledger.release(5_004, &[held.remove(place)]);
    }
    assert_eq!(ledger, before);
}

#[test]
fn a_slot_given_back_in_the_middle_serves_the_next_request() {
    let mut ledger = Ledger::new(&[LOG]);
    let held = slots(&mut ledger, 5_000, &[ask(6, 1)]);
    assert_eq!(times(&held), [5_000, 5_000, 6_010, 6_010, 7_020, 7_020]);
    ledger.release(5_001, &held[2..3]);
    let next = slots(&mut ledger, 5_002, &[ask(2, 1)]);
    assert_eq!(times(&next), [6_010, 8_030]);
}

#[test]
fn a_free_slot_serves_whoever_can_do_with_its_margin() {
    let mut ledger = Ledger::new(&[LOG]);
    let held = slots(&mut ledger, 5_000, &[ask(6, 1)]);
    ledger.release(5_001, &held[2..3]);
    let next = |ledger: &mut Ledger, least_margin| {
        let terms = Terms {
            least_margin,
            ..Terms::of_margin(30)
        };
        ledger.reserve(5_002, &terms, &[ask(1, 1)])[0].clone()
    };
    let fresh = next(&mut ledger, 11);
    assert!(matches!(
        fresh,
        Outcome::Granted(Slot {
            at: 8_030,
            record: 8_060,
            ..
        })
    ));
    assert_eq!(next(&mut ledger, 10), Outcome::Granted(held[2].clone()));
}

#[test]
fn a_slot_before_the_answer_is_there_has_the_margin_from_then_on() {
    let mut ledger = Ledger::new(&[LOG]);
    let terms = Terms {
        round_trip: 50,
        ..Terms::of_margin(10)
    };
    let records = ledger.reserve(5_000, &terms, &[ask(3, 1)]);
    let records = records.iter().map(|outcome| match outcome {
        Outcome::Granted(slot) => (slot.at, slot.record),
        Outcome::Refused { .. } => panic!("refused"),
    });
    let expected = [(5_000, 5_060), (5_000, 5_060), (6_060, 6_070)];
    assert_eq!(records.collect::<Vec<_>>(), expected);
}

#[test]
fn each_request_of_a_burst_has_more_of_a_margin() {
    let mut ledger = Ledger::new(&[LOG]);
    let terms = Terms {
        stagger: 3,
        ..Terms::of_margin(10)
    };
    let outcomes = ledger.reserve(5_000, &terms, &[ask(6, 1)]);
    let times = outcomes.iter().map(|outcome| match outcome {
        Outcome::Granted(slot) => (slot.at, slot.record),
        Outcome::Refused { .. } => panic!("refused"),
    });
    let expected = [
        (5_000, 5_010),
        (5_000, 5_013),
        (6_010, 6_020),
        (6_013, 6_023),
        (7_020, 7_030),
        (7_023, 7_033),
    ];
    assert_eq!(times.collect::<Vec<_>>(), expected);
}

#[test]
fn a_free_slot_whose_time_has_passed_is_charged_no_longer() {
    let mut ledger = Ledger::new(&[LOG]);
    let held = slots(&mut ledger, 5_000, &[ask(4, 1)]);
    ledger.release(5_001, &held[2..3]);
    assert_eq!(times(&slots(&mut ledger, 6_500, &[ask(1, 1)])), [6_500]);
}

#[test]
fn a_request_that_did_not_depart_is_charged_no_longer() {
    let mut ledger = Ledger::new(&[LOG]);
    let held = slots(&mut ledger, 5_000, &[ask(2, 1)]);
    ledger.release(5_050, &held[..1]);
    assert_eq!(
        times(&slots(&mut ledger, 5_060, &[ask(2, 1)])),
        [5_060, 6_010]
    );
}

#[test]
fn a_log_without_records_has_no_free_slots() {
    let mut ledger = Ledger::new(&[LOG]);
    let held = slots(&mut ledger, 0, &[ask(6, 1)]);
    let after = held[5].at + 5_000;
    ledger.release(after, &held[..1]);
    // The clock is set back, and a slot given back that nothing is left of.
    let before = held[4].at - 100;
    ledger.release(before, &held[4..5]);
    assert!(ledger.free().is_empty());
    let anew = slots(&mut ledger, before, &[ask(3, 1)]);
    assert_eq!(times(&anew), [before, before, before + 1_010]);
}

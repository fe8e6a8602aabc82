//! More of all, for whoever changes the protocol.

use super::*;

const DEPARTS: &[Event] = &[Event::Departs];
const AGAIN: &[Event] = &[Event::Departs, Event::IsHandedOutAgain];

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_requests_are_cancelled() {
    let may = May {
        cancelled: 1,
        ..NOTHING
    };
    let setup = of("cancelled", [2, 1], may);
    assert_holds(&exhausted(&setup), AGAIN);
    assert_holds(&exhausted(&two(&setup)), DEPARTS);
    assert_holds(&of("cancelled", [2, 2], may), AGAIN);
}

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_processes_are_late_and_crash() {
    let late = May {
        late: 1,
        cancelled: 1,
        ..NOTHING
    };
    assert_holds(&of("late", [2, 1], late), DEPARTS);
    let crash = May {
        late: 1,
        lost: 1,
        crashed: 1,
        ..NOTHING
    };
    assert_holds(&of("crash", [2, 1], crash), DEPARTS);
    let all = May {
        cancelled: 1,
        ..crash
    };
    assert_holds(&of("all but pauses", [1, 1], all), DEPARTS);
    let twice = May { late: 2, ..all };
    assert_holds(&two(&of("late twice", [1, 1], twice)), DEPARTS);
}

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_the_store_is_out() {
    let events = [Event::Departs, Event::IsLost, Event::OutlastsAnOutage];
    let lost = May {
        cancelled: 1,
        lost: 1,
        ..NOTHING
    };
    assert_holds(&of("lost", [2, 1], lost), &events);
    let missed = May {
        lost: 1,
        paused: 1,
        missed: 1,
        ..NOTHING
    };
    let setup = Setup {
        tick: Duration::from_millis(100),
        ..of("missed, then out", [0, 1], missed)
    };
    assert_holds(&exhausted(&setup), &events);
}

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_somebody_says_to_pause() {
    let may = May {
        paused: 1,
        ..NOTHING
    };
    assert_holds(&two(&of("paused", [1, 1], may)), DEPARTS);
    assert_holds(&of("paused", [2, 1], may), AGAIN);
}

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_somebody_says_to_pause_twice() {
    let may = May {
        paused: 2,
        ..NOTHING
    };
    assert_holds(&exhausted(&of("paused twice", [0, 1], may)), DEPARTS);
}

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_somebody_is_late_in_a_pause() {
    let may = May {
        late: 1,
        paused: 1,
        ..NOTHING
    };
    assert_holds(&of("late in a pause", [1, 1], may), DEPARTS);
}

#[test]
#[ignore = "takes some minutes: cargo test --lib line::model::wide -- --ignored --nocapture"]
fn the_promise_holds_when_a_process_does_not_hear_of_a_pause() {
    let may = May {
        cancelled: 1,
        paused: 1,
        missed: 1,
        ..NOTHING
    };
    let setup = Setup {
        tick: Duration::from_millis(100),
        ..of("missed", [1, 1], may)
    };
    assert_holds(&setup, DEPARTS);
}

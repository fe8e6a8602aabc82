//! The protocol between processes and their store, checked in every order in which things can happen.
//!
//! What is checked is the code itself: the store is the real [`Ledger`], and each process has a real [`Queue`] and
//! a real [`Guard`]. Only what needs a runtime stands here once more: the steps of the driver, the pauses that a
//! process knows, and the connection, which keeps the order of its calls. What the model leaves
//! out, and why, is in [`protocol`](crate::protocol).
//!
//! [`Ledger`]: crate::algorithm::ledger::Ledger
//! [`Queue`]: super::queue::Queue
//! [`Guard`]: crate::guard::Guard

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use self::claims::Claim;
use self::fault::Fault;
use self::seen::{Event, Seen};
use self::setup::{May, Setup};

mod actions;
mod attending;
mod bell;
mod claims;
mod copies;
mod driving;
mod fault;
mod hearing;
mod messages;
mod moment;
mod process;
mod seen;
mod serving;
mod setup;
mod wide;
mod words;
mod world;

const NOTHING: May = May {
    late: 0,
    cancelled: 0,
    lost: 0,
    crashed: 0,
    paused: 0,
    missed: 0,
};

/// With so many requests of each process, one departure per window, and nothing that goes wrong.
fn of(name: &'static str, requests: [usize; 2], may: May) -> Setup {
    Setup {
        name,
        tick: Duration::from_millis(2),
        limit: 1,
        window: 5,
        guard: 5,
        pause: 3,
        requests: requests.into(),
        departed: 0,
        may,
        fault: None,
        seen: Seen::default(),
    }
}

/// Goes through all states, or until something is broken; yields what, and how.
fn broken(setup: &Setup) -> Vec<(&'static str, String)> {
    let begun = Instant::now();
    let checker = setup.clone().checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    println!(
        "{}, {} per window, {:?} requests, {:?}: {} states by {} steps, {} deep, {:?}; {}",
        setup.name,
        setup.limit,
        setup.requests,
        setup.may,
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed(),
        setup.seen,
    );
    let discoveries = checker.discoveries().into_iter();
    let tell = |(claim, path): (_, stateright::Path<_, _>)| (claim, tell(path));
    discoveries.map(tell).collect()
}

/// What happened, when.
fn tell(path: stateright::Path<world::World, actions::Action>) -> String {
    let steps = path.into_vec().into_iter();
    let line = |(world, action): (world::World, Option<actions::Action>)| {
        let tick = world.tick;
        let slots = world.handed.iter();
        let slots = slots.map(|it| (it.at - setup::EPOCH, it.record - setup::EPOCH, it.owner));
        let slots: Vec<_> = slots.collect();
        format!("at {tick}, with slots {slots:?}: {action:?}\n")
    };
    steps.map(line).collect()
}

#[track_caller]
fn assert_holds(setup: &Setup, events: &[Event]) {
    if let Some((claim, path)) = broken(setup).first() {
        panic!("{}: {claim} is broken:\n{path}", setup.name);
    }
    for &event in events {
        assert!(setup.seen.count(event) > 0, "no request {event:?}");
    }
}

/// The same for two departures per window.
fn two(setup: &Setup) -> Setup {
    Setup {
        limit: 2,
        seen: Seen::default(),
        ..setup.clone()
    }
}

/// The same when the store has just let as many depart as it may, so that everybody waits.
fn exhausted(setup: &Setup) -> Setup {
    Setup {
        departed: setup.limit,
        seen: Seen::default(),
        ..setup.clone()
    }
}

#[test]
fn the_promise_holds_while_nothing_goes_wrong() {
    let name = "nothing goes wrong";
    assert_holds(&of(name, [2, 2], NOTHING), &[Event::Departs]);
    assert_holds(&two(&of(name, [2, 1], NOTHING)), &[Event::Departs]);
}

#[test]
fn the_promise_holds_when_requests_are_cancelled() {
    let may = May {
        cancelled: 1,
        ..NOTHING
    };
    let setup = of("cancelled", [2, 1], may);
    assert_holds(&setup, &[Event::Departs]);
    assert_holds(&two(&setup), &[Event::Departs]);
    let twice = May {
        cancelled: 2,
        ..NOTHING
    };
    assert_holds(&of("cancelled", [3, 0], twice), &[Event::Departs]);
}

#[test]
fn the_promise_holds_when_somebody_is_late() {
    // Two ticks, as a slot comes up to half a tick after one and is good for two more.
    let may = May { late: 2, ..NOTHING };
    let events = [Event::Departs, Event::Expires];
    assert_holds(&of("late", [1, 1], may), &events);
    assert_holds(&of("late", [2, 0], may), &events);
}

#[test]
fn the_promise_holds_when_processes_crash() {
    let may = May {
        late: 1,
        cancelled: 1,
        crashed: 1,
        ..NOTHING
    };
    let events = [Event::Departs, Event::Expires, Event::IsLost];
    let setup = of("crash", [1, 1], may);
    assert_holds(&setup, &events);
    assert_holds(&two(&setup), &events);
}

#[test]
fn the_promise_holds_when_calls_are_lost() {
    let events = [Event::Departs, Event::IsLost, Event::OutlastsAnOutage];
    let lost = May { lost: 1, ..NOTHING };
    let cancelled = May {
        cancelled: 1,
        ..lost
    };
    let setup = of("lost", [1, 1], cancelled);
    assert_holds(&setup, &events);
    assert_holds(&two(&setup), &events);
    assert_holds(&of("lost", [1, 1], May { late: 1, ..lost }), &events);
    assert_holds(&of("lost twice", [2, 0], May { lost: 2, ..lost }), &events);
}

#[test]
fn the_promise_holds_when_somebody_says_to_pause() {
    let may = May {
        paused: 1,
        ..NOTHING
    };
    let events = [Event::Departs, Event::IsVoid, Event::IsHandedOutAgain];
    assert_holds(&of("paused", [1, 1], may), &events);
    // Who has asked before knows the store's clock, and pauses before the store has heard.
    assert_holds(&of("paused", [2, 0], may), &events[..2]);
}

/// At 100 ms a tick, so that what a process does after it has missed something takes few of them; and requests
/// that have long to wait gather.
#[test]
fn the_promise_holds_when_a_process_does_not_hear_of_a_pause() {
    let may = May {
        paused: 1,
        missed: 1,
        ..NOTHING
    };
    let setup = Setup {
        tick: Duration::from_millis(100),
        ..of("missed", [0, 1], may)
    };
    assert_holds(&exhausted(&setup), &[Event::Departs, Event::IsVoid]);
}

#[test]
fn every_fault_breaks_what_it_should() {
    let late = May { late: 2, ..NOTHING };
    let cancelled = May {
        cancelled: 1,
        ..NOTHING
    };
    let paused = May {
        paused: 1,
        ..NOTHING
    };
    let lost = May { lost: 1, ..NOTHING };
    let missed = May {
        missed: 1,
        ..paused
    };
    for fault in Fault::ALL {
        let (requests, may) = match fault {
            Fault::RecordsNoGuard | Fault::ForgetsEverything | Fault::WakesNobody => {
                ([1, 1], NOTHING)
            }
            Fault::ReadsAnswersAsIfTheyTookNoTime | Fault::DepartsHoweverLate => ([1, 1], late),
            Fault::AsksAnewWhenItWakes => ([2, 0], NOTHING),
            Fault::LetsCallsOvertakeReleases => ([2, 1], cancelled),
            Fault::KeepsWhatTheCancelledHeld => ([1, 1], cancelled),
            Fault::MovesUpInTheWrongOrder => ([3, 0], cancelled),
            Fault::LeavesHeldSlotsInAPause => ([1, 1], paused),
            Fault::WakesForWhatHasPassed => ([0, 1], missed),
            Fault::DropsWhoAskedInVain | Fault::NeverLooksAgain => ([1, 1], lost),
        };
        let fault = Some(fault);
        let mut setup = Setup {
            fault,
            ..of("faulty", requests, may)
        };
        if may.missed > 0 {
            // As long as it takes until the next look.
            setup.tick = Duration::from_millis(100);
            setup = exhausted(&setup);
        }
        let broken = broken(&setup);
        let claims: Vec<_> = broken.iter().map(|(claim, _)| *claim).collect();
        println!("{fault:?} breaks {claims:?}");
        let expected = fault.map(Fault::breaks).map(Claim::name);
        assert!(
            claims.iter().any(|&claim| Some(claim) == expected),
            "{fault:?}: {broken:?}"
        );
    }
}

//! The protocol between processes and their store, checked in every order in which things can happen.
//!
//! The model contains the production [`State`](crate::algorithm::State) and one production [`Queue`](super::Queue) for each
//! process. Clocks agree and time passes in ticks. The measurement of clocks, the guard and outages are left out.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use self::world::{Claim, Fault, Kind, May, NOTHING, Setup};
use super::{Fate, Queue, Refusal, Request};

mod steps;
mod world;

const WAITS: Kind = Kind::Waits;
const TRIES: Kind = Kind::Tries;
const BOUNDED: Kind = Kind::Bounded(6);

/// With these requests of two processes, one departure per window, and these faults of the environment.
fn setup(name: &'static str, requests: &[(usize, Kind)], may: May) -> Setup {
    Setup {
        name,
        limit: 1,
        window: 4,
        requests: requests.to_vec(),
        is_exhausted: false,
        is_strict: false,
        may,
        fault: None,
    }
}

/// Allows two departures per window.
fn two(setup: Setup) -> Setup {
    Setup { limit: 2, ..setup }
}

/// Starts after as many departures as the quota allows.
fn exhausted(setup: Setup) -> Setup {
    Setup {
        is_exhausted: true,
        ..setup
    }
}

impl Queue {
    /// The model compares queues without their tasks and the texts of errors.
    fn state(&self) -> impl PartialEq + Hash {
        let request = |(id, request): (usize, &Request)| {
            let fate = match &request.fate {
                Fate::Waiting => (0, None, None),
                Fate::Departs(turn) => (1, Some(*turn), None),
                Fate::Fails(Refusal::Limited(standing)) => (2, None, Some(*standing)),
                Fate::Fails(Refusal::Full(_)) => (3, None, None),
                Fate::Fails(Refusal::TooCostly) => (4, None, None),
                Fate::Fails(Refusal::Store(_)) => (5, None, None),
            };
            let asks = (request.place, request.mode, request.cost);
            let times = (request.arrival, request.bound);
            (id, asks, times, request.has_missed, fate)
        };
        let requests: Vec<_> = self.requests.iter().map(request).collect();
        let calls = (&self.stage, self.lost, self.is_announced, &self.settlements);
        let out = self.out.as_ref().map(|out| out.since);
        (
            requests,
            calls,
            self.stall,
            self.latest,
            self.paused_until,
            out,
        )
    }
}

impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.state() == other.state()
    }
}

impl Eq for Queue {}

impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.state().hash(state);
    }
}

/// Explores all states, or until a claim is broken; returns that claim and the path to it.
fn broken(setup: &Setup) -> Option<(Claim, String)> {
    let begun = Instant::now();
    let checker = setup.clone().checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    println!(
        "{}, {} per window, {:?}, {:?}: {} states, {} steps, {:?}",
        setup.name,
        setup.limit,
        setup.requests,
        setup.may,
        checker.unique_state_count(),
        checker.state_count(),
        begun.elapsed(),
    );
    let (_, path) = checker.discoveries().into_iter().next()?;
    let path = path.into_vec();
    let claim = path.last()?.0.broken?;
    let steps = path.iter().map(|(world, step)| {
        let departed = &world.departed;
        format!("at {}, departed at {departed:?}: {step:?}\n", world.tick)
    });
    Some((claim, steps.collect()))
}

#[track_caller]
fn assert_holds(setup: &Setup) {
    if let Some((claim, path)) = broken(setup) {
        panic!("{}: {claim:?} is broken:\n{path}", setup.name);
    }
}

#[test]
fn the_promises_hold_while_nothing_goes_wrong() {
    let requests = [(0, BOUNDED), (0, TRIES), (1, WAITS)];
    let model = setup("no faults", &requests, NOTHING);
    assert_holds(&model);
    assert_holds(&two(model.clone()));
    assert_holds(&exhausted(model));
}

#[test]
fn the_promises_hold_when_requests_are_cancelled_or_forfeit_permits() {
    let may = May {
        cancelled: 1,
        forfeited: 1,
        ..NOTHING
    };
    assert_holds(&setup(
        "cancelled",
        &[(0, WAITS), (0, WAITS), (1, WAITS)],
        may,
    ));
    let model = setup("cancelled", &[(0, WAITS), (0, BOUNDED), (1, TRIES)], may);
    assert_holds(&two(model.clone()));
    assert_holds(&exhausted(model));
}

#[test]
fn the_promises_hold_when_processes_are_late_or_stopped() {
    let requests = [(0, WAITS), (0, BOUNDED), (1, WAITS)];
    let late = May { late: 1, ..NOTHING };
    assert_holds(&setup("late", &requests, late));
    assert_holds(&two(setup("late", &requests, late)));
    let stopped = May {
        stopped: 1,
        ..NOTHING
    };
    assert_holds(&setup("stopped", &requests, stopped));
    assert_holds(&exhausted(setup("stopped", &requests, stopped)));
}

#[test]
fn the_promises_hold_when_calls_and_replies_are_lost() {
    let lost = May { lost: 1, ..NOTHING };
    let requests = [(0, WAITS), (0, TRIES), (1, WAITS)];
    assert_holds(&setup("lost", &requests, lost));
    assert_holds(&two(setup("lost", &requests, lost)));
    let cancelled = May {
        cancelled: 1,
        ..lost
    };
    assert_holds(&setup("lost", &[(0, WAITS), (1, WAITS)], cancelled));
    let twice = May { lost: 2, ..NOTHING };
    assert_holds(&setup("lost twice", &[(0, WAITS), (0, WAITS)], twice));
}

#[test]
fn the_promises_hold_when_processes_crash() {
    let may = May {
        crashed: 1,
        ..NOTHING
    };
    let requests = [(0, WAITS), (0, WAITS), (1, WAITS)];
    assert_holds(&setup("crash", &requests, may));
    assert_holds(&exhausted(setup("crash", &requests, may)));
}

#[test]
fn the_promises_hold_when_a_process_pauses_and_resumes() {
    let may = May {
        paused: 1,
        ..NOTHING
    };
    let requests = [(0, WAITS), (0, BOUNDED), (1, WAITS)];
    assert_holds(&setup("paused", &requests, may));
    assert_holds(&exhausted(setup("paused", &requests, may)));
}

#[test]
fn the_promises_hold_under_strict_recovery_when_the_store_loses_its_state() {
    let may = May {
        lost_state: 1,
        ..NOTHING
    };
    let requests = [(0, WAITS), (1, WAITS)];
    let strict = |model| Setup {
        is_strict: true,
        ..model
    };
    assert_holds(&strict(setup("state lost", &requests, may)));
    assert_holds(&strict(two(setup("state lost", &requests, may))));
}

#[test]
fn the_model_finds_every_planted_mistake() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        let pair = [(0, WAITS), (1, WAITS)];
        let both = [(0, WAITS), (0, WAITS)];
        let three = [(0, WAITS), (0, WAITS), (0, WAITS)];
        let one = [(0, WAITS)];
        let (requests, may): (&[_], May) = match fault {
            Fault::RecordsNoGuard | Fault::IgnoresUntil => (&pair, May { late: 2, ..NOTHING }),
            Fault::WakesNobody => (&pair, NOTHING),
            Fault::SkipsRequestsThatJoinedLater => (&both, NOTHING),
            Fault::AppliesLostReplies => (&pair, May { lost: 1, ..NOTHING }),
            Fault::IgnoresNumbers => (&both, May { lost: 1, ..NOTHING }),
            Fault::TakesNothingBack | Fault::RepeatsNoFailedCall => {
                (&one, May { lost: 1, ..NOTHING })
            }
            Fault::KeepsTurnsOfCancelled | Fault::KeepsDemandOfCancelled => (
                &pair,
                May {
                    cancelled: 1,
                    ..NOTHING
                },
            ),
            Fault::PassesTurnsOnOutOfOrder => (
                &three,
                May {
                    cancelled: 1,
                    ..NOTHING
                },
            ),
            Fault::RequeuesBehindOthers => (&both, May { late: 2, ..NOTHING }),
            Fault::SettlesTwice => (
                &three,
                May {
                    forfeited: 1,
                    ..NOTHING
                },
            ),
            Fault::KeepsTurnsInPause => (
                &one,
                May {
                    paused: 1,
                    late: 1,
                    ..NOTHING
                },
            ),
            Fault::ForgetsState => (
                &pair,
                May {
                    lost_state: 1,
                    ..NOTHING
                },
            ),
            Fault::DepartsBeforeTurn => (&pair, NOTHING),
        };
        let mut model = setup("planted", requests, may);
        model.fault = Some(fault);
        if matches!(
            fault,
            Fault::SettlesTwice | Fault::TakesNothingBack | Fault::RequeuesBehindOthers
        ) {
            model = two(model);
        }
        if matches!(fault, Fault::KeepsDemandOfCancelled) {
            model = exhausted(model);
        }
        let found = broken(&model);
        let claim = found.as_ref().map(|(claim, _)| *claim);
        println!("{fault:?} breaks {claim:?}");
        if !claim.is_some_and(|claim| fault.breaks().contains(&claim)) {
            let path = found.map(|(_, path)| path).unwrap_or_default();
            println!("{path}");
            missed.push((fault, claim));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Several faults at once.
#[test]
#[ignore = "takes minutes"]
fn the_promises_hold_in_wide_setups() {
    let requests = [(0, WAITS), (0, BOUNDED), (1, WAITS)];
    let lost = May { lost: 2, ..NOTHING };
    assert_holds(&two(setup("wide, lost", &requests, lost)));
    let cancelled = May {
        lost: 1,
        late: 1,
        cancelled: 1,
        ..NOTHING
    };
    let pair = [(0, WAITS), (1, WAITS)];
    assert_holds(&two(setup("wide, cancelled", &pair, cancelled)));
    let crashed = May {
        crashed: 1,
        lost: 1,
        ..NOTHING
    };
    assert_holds(&setup("wide, crash", &requests, crashed));
    let paused = May {
        paused: 1,
        late: 1,
        forfeited: 1,
        ..NOTHING
    };
    assert_holds(&two(setup("wide, paused", &pair, paused)));
}

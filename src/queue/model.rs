//! The protocol between processes and their store, checked in every order in which things can happen.
//!
//! The model contains the production [`State`](crate::algorithm::State) and one production [`Queue`](super::Queue) for each
//! process. Clocks agree and time passes in ticks. The measurement of clocks and of the guard are left out.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use stateright::{Checker, HasDiscoveries, Model};

use self::world::{Claim, Setup, World};
use super::{Arrival, Queue, Request, Turn};

mod steps;
mod world;

impl Queue {
    /// The model compares queues without their tasks and the reasons of failures.
    fn state(&self) -> impl PartialEq + Hash {
        let request = |arrival: Arrival, request: &Request, turn: Option<Turn>| {
            let asks = (arrival, request.mode, request.cost);
            (asks, request.bound, request.has_missed, turn)
        };
        let waiting = self.waiting.iter().chain(&self.tries);
        let waiting = waiting.map(|(&new, it)| request(new, it, None));
        let departing = self.departing.requests.iter();
        let departing = departing.map(|(&new, it)| request(new, &it.request, Some(*it.turn)));
        let failed: Vec<_> = self.failed.keys().copied().collect();
        let requests: Vec<_> = waiting.chain(departing).collect();
        let unsent = (self.unsent.lost, &self.unsent.settlements);
        let calls = (&self.calls, self.is_announced, unsent);
        let out = self.out.as_ref().map(|(since, _)| *since);
        let times = (self.latest, self.paused_until, out);
        let places = (self.departing.stall, self.places);
        (requests, failed, calls, times, places)
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
    let states = checker.unique_state_count();
    println!("{}: {states} states, {:?}", setup.name, begun.elapsed());
    let (_, path) = checker.discoveries().into_iter().next()?;
    let path = path.into_vec();
    let claim = path.last()?.0.broken?;
    let steps = path.iter().map(|(world, step)| {
        let departed = &world.departed;
        format!("at {}, departed at {departed:?}: {step:?}\n", world.tick)
    });
    Some((claim, steps.collect()))
}

/// Takes random steps until the end, or until a claim is broken; returns that claim and the steps.
fn walk(setup: &Setup, seed: u64) -> Option<(Claim, String)> {
    let (mut random, mut world) = (StdRng::seed_from_u64(seed), World::new(setup));
    let (mut possible, mut taken) = (Vec::new(), String::new());
    loop {
        setup.actions(&world, &mut possible);
        let Some(&step) = possible.choose(&mut random) else {
            return Some((world.broken?, taken));
        };
        taken += &format!("at {}: {step:?}\n", world.tick);
        world.apply(setup, step);
        world.check(setup);
        possible.clear();
    }
}

/// Setups with so few requests and faults that all of their histories can be explored.
const SHORT: &str = "
    bounded tries | waits
    bounded tries | waits; limit 2
    bounded tries | waits; exhausted
    tries bounded | waits; lost
    tries bounded; lost, exhausted
    waits waits | waits; cancelled, forfeited
    bounded | tries; cancelled, forfeited, limit 2
    waits bounded | tries; cancelled, forfeited, exhausted
    waits bounded | waits; late
    waits | bounded; late, limit 2
    waits bounded | waits; stopped
    waits bounded | waits; stopped, exhausted
    waits waits | waits; crashed
    waits waits | waits; crashed, exhausted
    waits tries | waits; lost
    waits tries | waits; lost, limit 2
    waits | waits; lost, cancelled
    waits waits; lost 2
    waits | waits; paused
    waits | bounded; paused, exhausted
    waits | waits; lost-state, strict
    waits | waits; lost-state, strict, limit 2";

/// Those of two levels, and those that limit the requests in progress.
const SHORT_OF_LEVELS_AND_PLACES: &str = "
    waits | waits waits; levels
    waits bounded | waits; levels, exhausted
    waits | waits tries; levels, cancelled
    waits | waits; levels, lost, late
    waits waits | waits; levels, crashed
    waits | waits; levels, stopped
    waits | waits; levels, paused
    waits waits | waits; places
    waits tries | waits; places, limit 2
    waits | waits; places, cancelled, forfeited
    waits | waits; places, lost
    waits | waits; places, crashed
    waits | waits; places, stopped
    waits | waits; places, lost-state, strict";

#[track_caller]
fn assert_hold(setups: &'static str) {
    for setup in setups.trim().lines().map(|it| Setup::parse(it.trim())) {
        if let Some((claim, path)) = broken(&setup) {
            panic!("{}: {claim:?} is broken:\n{path}", setup.name);
        }
    }
}

#[test]
fn the_promises_hold_in_all_short_histories() {
    assert_hold(SHORT);
}

#[test]
fn the_promises_hold_in_all_short_histories_of_levels_and_places() {
    assert_hold(SHORT_OF_LEVELS_AND_PLACES);
}

const LONG: &str = "
    waits waits waits tries bounded waits waits waits; costs, limit 4, joined 12, cancelled 2, forfeited 2, late 9, refused 2, out
    waits waits waits waits | waits bounded waits tries; costs, limit 4, joined 12, cancelled 2, forfeited 2, late 9, lost 3, out
    waits waits waits waits | waits bounded waits waits; costs, limit 4, joined 12, cancelled 2, late 9, lost 3, stopped 2, crashed
    waits waits waits waits | waits bounded waits tries; limit 3, joined 12, cancelled, forfeited, late 9, paused 2, lost 2, refused
    waits waits waits waits | waits waits tries; costs, places, limit 4, joined 12, cancelled 2, forfeited 2, lost 2, late 4, refused
    waits waits waits waits waits waits waits waits waits waits waits waits waits waits waits; limit 15, joined 2, late 15, cancelled 3, forfeited 3";
/// Far more requests than can be explored, and many faults at once.
#[test]
fn the_promises_hold_in_long_random_histories() {
    for setup in LONG.trim().lines().map(|it| Setup::parse(it.trim())) {
        for seed in 0..500 {
            if let Some((claim, path)) = walk(&setup, seed) {
                panic!("{}, seed {seed}: {claim:?} is broken:\n{path}", setup.name);
            }
        }
    }
}

/// Each mistake, the setup that finds it, and the claims of which it breaks one.
const MISTAKES: &str = "
    records-no-guard: waits | waits; late 2 => NeverMore
    departs-before-turn: waits | waits => InTurn
    applies-lost-replies: waits | waits; lost => NeverMore NothingLeaks
    ignores-numbers: waits waits; lost => NothingLeaks
    keeps-demand-of-cancelled: waits | waits; cancelled, exhausted => NothingLeaks
    requeues-behind-others: waits waits; late 2, limit 2 => InOrder
    settles-twice: waits waits waits; forfeited, limit 2 => NeverMore NothingLeaks
    keeps-turns-in-pause: waits; paused, late => PausesHold
    wakes-nobody: waits | waits => NothingIsStuck
    forgets-state: waits | waits; lost-state => NeverMore
    forgets-state: waits | waits; places, lost-state => NeverMore
    releases-nothing: waits | waits; places => NothingLeaks EveryRequestEnds
    ignores-levels: waits | waits; levels, exhausted => InLevels";

#[test]
fn the_model_finds_every_planted_mistake() {
    for line in MISTAKES.lines().skip(1) {
        let (fault, rest) = line.trim().split_once(": ").expect("a mistake");
        let (setup, claims) = rest.split_once(" => ").expect("claims");
        let setup = Setup {
            fault,
            ..Setup::parse(setup)
        };
        let (claim, _) = broken(&setup).expect(line);
        let is_expected = claims.split(' ').any(|it| it == format!("{claim:?}"));
        assert!(is_expected, "{line}: {claim:?}");
    }
}

//! Three processes share quotas on one Redis, for as long as one likes, while everything goes wrong at random:
//! no window holds more than is promised, every request gets an answer, and nothing piles up.
//!
//! ```sh
//! scripts/soak 10        # minutes
//! scripts/soak 10 7      # with the seed of the run that printed this
//! SOAK_MISCHIEF=hoards scripts/soak 3    # see `mischief`: it has to fail
//! ```

mod befalls;
mod caller;
mod judge;
mod kept;
mod load;
mod memory;
mod mischief;
mod phase;
mod quotas;
mod report;
mod rest;
mod run;
mod subject;

use std::env;
use std::time::Duration;

use crate::stage::Part;
use mischief::Mischief;
use run::{Plan, run};
use support::child;

/// How long each phase is under load; it lasts until what has begun is put right, and all is at rest.
const PHASE: Duration = Duration::from_secs(25);

#[test]
#[ignore = "runs for minutes: scripts/soak MINUTES"]
fn soak() {
    let minutes: f64 = number("SOAK_MINUTES").expect("SOAK_MINUTES says how long");
    let ended = run(&Plan {
        length: Duration::from_secs_f64(60.0 * minutes),
        phase: PHASE,
        befalls: befalls::ALL,
        seed: number("SOAK_SEED").unwrap_or_else(rand::random),
        mischief: env::var("SOAK_MISCHIEF").map_or_else(|_| vec![], |it| mischief::parse(&it)),
    });
    ended.assert_well();
}

#[test]
fn a_phase_of_each_kind_breaks_nothing() {
    let ended = run(&Plan {
        befalls: befalls::BRIEF,
        ..Plan::brief(&[])
    });
    ended.assert_well();
}

#[test]
fn what_is_left_behind_is_found() {
    use Mischief::{Abandons, Dawdles, Litters};
    let ended = run(&Plan::brief(&[Abandons, Dawdles, Litters]));
    ended.assert_complains_of(&["queues are left", "tasks are left", "without an expiry"]);
}

#[test]
fn who_departs_without_a_permit_is_found() {
    let ended = run(&Plan::brief(&[Mischief::Jumps]));
    ended.assert_complains_of(&["where any 500ms may hold at most 10"]);
}

#[test]
fn a_loss_of_state_that_nobody_tells_of_is_found() {
    let ended = run(&Plan::brief(&[Mischief::Forgets]));
    ended.assert_complains_of(&["where any 500ms may hold at most 10"]);
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn process() {
    let Some(role) = child::role() else { return };
    load::play(&Part::parse(&role));
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable} is a number, and not {text:?}"),
    }
}

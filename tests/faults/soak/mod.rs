//! Three processes share quotas on one Redis, under strict recovery, while faults occur at random, for any time:
//! no window holds more than is promised, every request gets an answer, and nothing piles up.
//!
//! ```sh
//! scripts/soak 10        # minutes
//! scripts/soak 10 7      # with the seed of the run that printed this
//! ```

mod departures;
mod load;
mod phase;

use std::env;

use crate::prelude::*;
pub(crate) use load::run_process;
use phase::Phases;

#[test]
#[ignore = "runs for minutes: scripts/soak MINUTES"]
fn soak() {
    let minutes: f64 = number("SOAK_MINUTES").expect("SOAK_MINUTES is the length");
    let seed = number("SOAK_SEED").unwrap_or_else(rand::random);
    let length = Duration::from_secs_f64(60.0 * minutes);
    run(length, Duration::from_secs(25), table::of_soak(), seed);
}

#[test]
fn a_phase_of_each_kind_breaks_nothing() {
    let phase = Duration::from_secs(2);
    run(Duration::ZERO, phase, vec!["FLUSHALL"], rand::random());
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = env::var(variable).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{variable} is a number, and not {text:?}")))
}

/// No phase begins later than after `length`, but there are two at least. Each has other quotas, and is under load for
/// `phase`, and lasts until what has begun is put right, and all is at rest. Prints what is done, and figures in the end.
fn run(length: Duration, phase: Duration, faults: Vec<&'static str>, seed: u64) {
    println!("SOAK_SEED={seed}");
    let server = || {
        let arguments = ["--repl-diskless-sync-delay", "0", "--lua-time-limit", "50"];
        RedisServer::start_with(&arguments)
    };
    let mut setup = Setup::with(vec![server(), server()]);
    setup.replicate(1, 0);
    setup.start_load("soak", &seed.to_string());
    let (mut phases, start) = (Phases::new(faults, setup, seed), Instant::now());
    while phases.count < 2 || start.elapsed() < length {
        phases.next(phase);
    }
    let tallies = phases.setup.stop();
    let all = tallies.iter().map(|(_, tally)| tally);
    let tally = all.fold(Tally::default(), Tally::join);
    let (elapsed, count) = (start.elapsed(), phases.count);
    let counts = [Count::Asked, Count::Departed, Count::Out];
    let counts = counts.map(|it| (it, tally.of(it)));
    println!("{elapsed:.0?}, {count} phases, {counts:?}");
    phases.assert_no_growth(elapsed);
}

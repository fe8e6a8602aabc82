//! A run from its beginning to its end: [`run`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::befalls::Befalls;
use super::mischief::{self, Mischief};
use super::phase::Phases;
use super::report;
use super::rest::accounts;
use crate::stage::Stage;
use support::errors::panic_text;
use support::redis_server::RedisServer;
use support::tally::Tally;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// No phase begins later than that, but there are two at least: one of each recovery.
    pub(crate) length: Duration,
    pub(crate) phase: Duration,
    pub(crate) befalls: &'static [Befalls],
    pub(crate) seed: u64,
    pub(crate) mischief: Vec<Mischief>,
}

impl Plan {
    /// As short as it gets, where nothing befalls.
    pub(crate) fn brief(mischief: &[Mischief]) -> Self {
        Self {
            length: Duration::ZERO,
            phase: Duration::from_secs(2),
            befalls: &[],
            seed: rand::random(),
            mischief: mischief.to_vec(),
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    seed: u64,
    complaints: Vec<String>,
}

/// Prints a table in the end. After a phase in which something went wrong that should not, no other begins.
pub(crate) fn run(plan: &Plan) -> Ended {
    let seed = plan.seed;
    println!("SOAK_SEED={seed}");
    let server = || {
        let arguments = ["--repl-diskless-sync-delay", "0", "--lua-time-limit", "50"];
        RedisServer::start_with(&arguments)
    };
    let mut stage = Stage::with(vec![server(), server()]);
    stage.replicate(1, 0);
    stage.play(
        "soak::process",
        &format!("{seed} {}", mischief::text(&plan.mischief)),
    );
    let random = StdRng::seed_from_u64(seed);
    let (mut phases, start) = (Phases::new(plan, stage, random), Instant::now());
    let mut complaints = Vec::new();
    while complaints.is_empty() && (phases.count < 2 || start.elapsed() < plan.length) {
        let phase = catch_unwind(AssertUnwindSafe(|| phases.next()));
        complaints = phase.unwrap_or_else(|panic| vec![panic_text(panic)]);
    }
    let stop = catch_unwind(AssertUnwindSafe(|| phases.stage.stop()));
    let tallies = stop.unwrap_or_else(|panic| {
        complaints.push(panic_text(panic));
        Vec::new()
    });
    for (number, tally) in &tallies {
        if complaints.is_empty() {
            complaints.extend(accounts(*number, tally, phases.kept.count(*number)));
        }
    }
    let took = start.elapsed();
    complaints.extend(report::growth(&phases, took));
    let tally = tallies
        .into_iter()
        .fold(Tally::default(), |all, (_, it)| all.join(&it));
    if !complaints.is_empty() {
        complaints.push(format!("what was done last:\n{}", phases.told()));
    }
    println!("{}", report::table(&phases, &tally, took));
    Ended { seed, complaints }
}

impl Ended {
    #[track_caller]
    pub(crate) fn assert_well(&self) {
        let text = self.complaints.join("\n");
        assert!(
            self.complaints.is_empty(),
            "SOAK_SEED={}\n{text}",
            self.seed
        );
    }

    /// Each of these is what some complaint says.
    #[track_caller]
    pub(crate) fn assert_complains_of(&self, texts: &[&str]) {
        let all = self.complaints.join("\n");
        for text in texts {
            assert!(all.contains(text), "no complaint has {text}, but:\n{all}");
        }
    }
}

//! Everything that can go wrong between three processes and their Redis goes wrong, for real and under
//! load: no window holds more than is promised, every request gets an answer, and the limiter recovers.
//!
//! ```sh
//! cargo test -p tower-throttle-tests --test faults -- --nocapture                      # prints the table
//! FAULTS_ONLY="cut" cargo test -p tower-throttle-tests --test faults -- --nocapture    # those with this in their name
//! FAULTS_MD=write cargo test -p tower-throttle-tests --test faults                     # writes the rows into src/docs/faults.md
//! ```

mod fault;
mod load;
mod places;
mod report;
mod setup;
mod soak;
mod table;
mod trial;
mod upstream;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use rand::seq::SliceRandom as _;

use crate::prelude::*;
use report::Page;
use support::errors::panic_text;

mod prelude {
    pub(crate) use std::collections::BTreeMap;
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::Ordering;
    pub(crate) use std::thread;
    pub(crate) use std::time::{Duration, Instant};

    pub(crate) use rand::rngs::StdRng;
    pub(crate) use rand::{Rng as _, SeedableRng as _};
    pub(crate) use support::child::{self, now};
    pub(crate) use support::errors::until_ok;
    pub(crate) use support::proxy::Proxy;
    pub(crate) use support::redis_server::{RedisServer, wait_until};
    pub(crate) use support::spend::build;
    pub(crate) use support::tally::{Count, Tally};
    pub(crate) use tokio::task::JoinSet;
    pub(crate) use tower_throttle::store::RedisStore;
    pub(crate) use tower_throttle::test_util::history::History;
    pub(crate) use tower_throttle::{Limiter, Lost, Permit, Quota, Recovery};

    pub(crate) use crate::fault::{Fault, Lasts};
    pub(crate) use crate::setup::{Args, PROCESSES, Setup, TIME_LIMIT, after, refusal};
    pub(crate) use crate::table;
    pub(crate) use crate::upstream::{Arrival, Sender};
}

/// How many trials run at a time: each is idle for most of it.
const AT_ONCE: usize = 4;

/// Runs the trials of these names in a random order, prints their rows, and asserts that no promise is broken.
fn run_all(names: &[&'static str], page: &Page, run: impl Fn(&'static str) -> String + Sync) {
    let only = env::var("FAULTS_ONLY").unwrap_or_default();
    let chosen = names.iter().copied().filter(|name| name.contains(&only));
    let mut waiting: Vec<_> = chosen.enumerate().collect();
    waiting.shuffle(&mut rand::rng());
    let (waiting, rows) = (Mutex::new(waiting), Mutex::new(BTreeMap::new()));
    let worker = || {
        while let Some((place, name)) = { waiting.lock().expect("no panic").pop() } {
            let row = catch_unwind(AssertUnwindSafe(|| run(name)));
            let row = row.map_err(|panic| format!("{name}: {}\n", panic_text(panic)));
            rows.lock().expect("no panic").insert(place, row);
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(worker);
        }
    });

    let (mut text, mut failures) = (page.head.to_owned(), String::new());
    for row in rows.into_inner().expect("no panic").into_values() {
        match row {
            Ok(row) => text += &row,
            Err(failure) => failures += &failure,
        }
    }
    println!("{text}");
    assert!(failures.is_empty(), "{failures}");
    if only.is_empty() && env::var("FAULTS_MD").is_ok_and(|how| how == "write") {
        page.write(&text);
    }
}

fn names() -> Vec<&'static str> {
    table::all().map(|it| it.name).collect()
}

fn names_of_places() -> Vec<&'static str> {
    table::places::ALL.iter().map(|it| it.name).collect()
}

#[test]
fn no_fault_breaks_the_bound_or_loses_a_request() {
    run_all(&names(), &report::RATES, |name| {
        trial::run(table::find(name))
    });
}

#[test]
fn no_fault_breaks_the_bound_of_requests_in_progress() {
    run_all(&names_of_places(), &report::PLACES, |name| {
        places::run(table::places::find(name))
    });
}

#[test]
fn the_documentation_has_a_row_for_each_fault_and_no_others() {
    assert_eq!(report::described(), names());
    assert_eq!(report::RATES.rows(), names());
    assert_eq!(report::PLACES.rows(), names_of_places());
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn process() {
    let Some(args) = child::role::<Args>() else {
        return;
    };
    match &*args.load {
        "rates" => load::run_process(&args),
        "places" => places::run_process(&args),
        _ => soak::run_process(&args),
    }
}

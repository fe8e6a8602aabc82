//! Everything that can go wrong between three processes and their Redis goes wrong, for real and under
//! load: no window holds more than is promised, every request gets an answer, and the limiter recovers.
//!
//! ```sh
//! cargo test -p tower-throttle-tests --test faults -- --nocapture                      # prints the table
//! FAULTS_SEED=7 cargo test -p tower-throttle-tests --test faults                       # the order of that run
//! FAULTS_ONLY="cut" cargo test -p tower-throttle-tests --test faults -- --nocapture    # those with this in their name
//! FAULTS_MD=write cargo test -p tower-throttle-tests --test faults                     # writes the rows into src/docs/faults.md
//! ```

mod counted;
mod fault;
mod load;
mod places;
mod report;
mod soak;
mod stage;
mod table;
mod trial;
mod upstream;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use fault::Fault;
use support::child;
use support::errors::panic_text;
use trial::Row;

/// How many trials run at a time: each is idle for most of it.
const LANES: usize = 4;

#[test]
fn no_fault_breaks_the_bound_or_loses_a_request() {
    let only = env::var("FAULTS_ONLY").unwrap_or_default();
    let mut faults: Vec<_> = table::all().filter(|it| it.name.contains(&only)).collect();
    assert!(!faults.is_empty(), "no fault's name contains {only:?}");
    let seed = env::var("FAULTS_SEED").map_or_else(
        |_| rand::random(),
        |seed| seed.parse().expect("FAULTS_SEED is a whole number"),
    );
    println!("FAULTS_SEED={seed}");
    faults.shuffle(&mut StdRng::seed_from_u64(seed));

    let waiting = Mutex::new(faults);
    let rows = Mutex::new(Vec::new());
    let complaints = Mutex::new(Vec::new());
    let lane = || {
        while let Some(fault) = { waiting.lock().expect("no panic").pop() } {
            match attempt(fault) {
                Ok(row) => {
                    let named = row
                        .complaints
                        .iter()
                        .map(|it| format!("{}: {it}", fault.name));
                    complaints.lock().expect("no panic").extend(named);
                    rows.lock().expect("no panic").push(row);
                }
                Err(panic) => complaints.lock().expect("no panic").push(panic),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });

    let rows = rows.into_inner().expect("no panic");
    println!("{}", report::table(&rows));
    let complaints = complaints.into_inner().expect("no panic");
    assert!(
        complaints.is_empty(),
        "FAULTS_SEED={seed}\n{}",
        complaints.join("\n")
    );
    if env::var("FAULTS_MD").is_ok_and(|how| how == "write") {
        report::write(&rows);
    }
}

/// One row; or, if that cannot be had, why.
fn attempt(fault: &'static Fault) -> Result<Row, String> {
    let row = catch_unwind(AssertUnwindSafe(|| trial::run(fault)));
    row.map_err(|panic| format!("{}: {}", fault.name, panic_text(panic)))
}

#[test]
fn the_documentation_has_a_row_for_each_fault_and_no_others() {
    let names: Vec<_> = table::all().map(|it| it.name.to_owned()).collect();
    assert_eq!(report::documented(), [names.clone(), names]);
    let names: Vec<_> = table::places::ALL.iter().map(|it| it.name).collect();
    assert_eq!(places::documented(), names);
}

#[test]
fn no_fault_breaks_the_bound_of_requests_in_progress() {
    places::run_all();
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn process() {
    let Some(role) = child::role() else { return };
    load::play(&stage::Part::parse(&role));
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn places_process() {
    let Some(role) = child::role() else { return };
    places::play(&stage::Part::parse(&role));
}

//! Compares a permit within one process, without Redis, with other embedded limiters and layers.
//!
//! | table | callers | keys |
//! | --- | --- | --- |
//! | permits | one thread; two threads at the same time | one key |
//! | layers | one thread calls a service that responds immediately, bare and through tower layers | one key |
//! | many keys | one thread | a random one of a million keys, after one request for each |
//!
//! Callers do not reach the limits, so they never wait. `governor` implements GCRA, so it is compared with GCRA; the
//! sliding log is the default of this crate. Contestants take turns in blocks of calls. Figures and ratios are medians
//! over the rounds. The allocator counts allocations in separate blocks, because that would take as long as a permit.

mod contestant;
mod keys;

use std::thread;

use clap::Parser as _;
use tokio::runtime::Handle;
use tower_throttle_benches::*;

use self::contestant::{ACQUIRE, Calls, Contestant, GOVERNOR};

/// Long enough for all limiters to drop expired entries.
const WARM_UP: u64 = 100_000;
const BLOCK: u64 = 20_000;
const ROUNDS: u32 = 60;

const MOST_TO_GOVERNOR: [(usize, &str, f64); 2] = [(1, "one thread", 1.3), (2, "two threads", 1.0)];
const MOST_OF_LAYER: f64 = 1.2;

fn main() -> anyhow::Result<()> {
    let mut output = Output::new(Options::parse());
    // A call that is interrupted for longer than the guard has to wait, which requires a runtime.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let _entered = runtime.enter();
    let all = Contestant::all()?;
    let mut times = Vec::new();
    for (threads, name, _) in MOST_TO_GOVERNOR {
        eprintln!("{name}");
        times.push(measure(&all, threads, &output)?);
    }
    show(&all, [&times[0], &times[1]], &mut output);
    eprintln!("a million keys");
    keys::measure(&mut output)?;
    output.finish();
    Ok(())
}

/// Nanoseconds per call. Only one thread calls layers.
fn measure(all: &[Contestant], threads: usize, output: &Output) -> anyhow::Result<Rounds> {
    let mut times = Rounds::new(all.len());
    let start = |it: &Contestant| (0..threads).map(|_| (it.start)()).collect();
    let mut calls: Vec<Vec<Calls>> = all.iter().map(start).collect();
    for calls in &mut calls {
        calls[0](WARM_UP);
    }
    for (_, place) in turns(output.count(ROUNDS) as usize, all.len()) {
        let Contestant { name, is_layer, .. } = &all[place];
        if threads > 1 && *is_layer {
            continue;
        }
        let start = Instant::now();
        let granted = block(&mut calls[place]);
        let time = start.elapsed();
        let calls = BLOCK * threads as u64;
        let is_granted = granted > calls / 100 * 99;
        ensure!(is_granted, "{name}: {granted} of {calls} were granted");
        times.push(place, time.as_secs_f64() * 1e9 / calls as f64);
    }
    Ok(times)
}

fn block(calls: &mut [Calls]) -> u64 {
    if let [calls] = calls {
        return calls(BLOCK);
    }
    let runtime = Handle::current();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for calls in calls {
            let runtime = &runtime;
            threads.push(scope.spawn(move || {
                let _entered = runtime.enter();
                calls(BLOCK)
            }));
        }
        let granted = threads.into_iter().map(|thread| thread.join().unwrap_or(0));
        granted.sum()
    })
}

fn show(all: &[Contestant], [one, two]: [&Rounds; 2], output: &mut Output) {
    let place = |name| all.iter().position(|it| it.name == name).unwrap_or(0);
    let (governor, acquire) = (place(GOVERNOR), place(ACQUIRE));
    let mut permits = Table::new(
        "nanoseconds per permit on one key",
        "call | one thread | relative to governor | two threads | relative to governor, two threads | \
         allocations per permit",
    );
    let mut layers = Table::new(
        "nanoseconds per call of a service",
        "layer | ns per call | ns more than bare | in embedded permits | allocations per call",
    );
    let bare = place("none");
    for (place, contestant) in all.iter().enumerate() {
        let Contestant { name, is_layer, .. } = contestant;
        let allocations = ratio(contestant.allocations());
        if *is_layer {
            let permits = one.excess(place, bare, acquire);
            layers.row([
                text(*name),
                figure(one.median(place)),
                figure(one.difference(place, bare)),
                ratio(permits),
                allocations,
            ]);
            if *name == "Throttle, GCRA" {
                let claim = format!("{name}, more than the bare service, in embedded permits");
                output.at_most(claim, permits, MOST_OF_LAYER);
            }
            continue;
        }
        permits.row([
            text(*name),
            figure(one.median(place)),
            ratio(one.ratio(place, governor)),
            figure(two.median(place)),
            ratio(two.ratio(place, governor)),
            allocations,
        ]);
        if name.starts_with("tower-throttle, GCRA") {
            for ((_, threads, most), times) in MOST_TO_GOVERNOR.into_iter().zip([one, two]) {
                let claim = format!("embedded, {name}, {threads}, to governor");
                output.at_most(claim, times.ratio(place, governor), most);
            }
        }
    }
    println!("{permits}");
    println!("{layers}");
}

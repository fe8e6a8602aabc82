//! Draws the plots of the documentation: the same burst under each algorithm.
//!
//! ```sh
//! cargo run -p algorithms             # writes src/docs/plots
//! cargo run -p algorithms -- --check  # fails if they are outdated
//! ```
//!
//! Time is paused, so the plots are reproducible and need no waiting.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Parser;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Quota};

use self::burst::{LIMIT, Run, WINDOW};
use self::data_uris::data_uris;
use self::plot::Windows;

mod burst;
mod data_uris;
mod plot;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/docs/plots");

/// Draws the same burst under each algorithm, into src/docs/plots.
#[derive(Parser)]
struct Args {
    /// Write nothing; fail if the files are outdated
    #[arg(long)]
    check: bool,
}

/// A quota with the bound that its documentation states.
struct Case {
    name: &'static str,
    quota: &'static str,
    /// Maximum number of departures in any window.
    bound: u32,
}

const CASES: [Case; 7] = [
    Case {
        name: "sliding-log",
        quota: "10/10s sliding-log",
        bound: LIMIT,
    },
    Case {
        name: "sliding-buckets",
        quota: "10/10s sliding-buckets buckets=5",
        bound: LIMIT,
    },
    Case {
        name: "spacing",
        quota: "10/10s spacing",
        bound: LIMIT,
    },
    Case {
        name: "leaky-bucket",
        quota: "10/10s leaky-bucket capacity=20",
        bound: LIMIT,
    },
    Case {
        name: "gcra",
        quota: "10/10s gcra burst=10",
        bound: 2 * LIMIT,
    },
    Case {
        name: "fixed-window-clock",
        quota: "10/10s fixed-window start=clock",
        bound: 2 * LIMIT,
    },
    Case {
        name: "fixed-window-first-request",
        quota: "10/10s fixed-window start=first-request",
        bound: 2 * LIMIT,
    },
];

struct File {
    name: String,
    text: String,
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let store = burst::aligned_store().await?;
    let mut files = Vec::new();
    println!(
        "{:<27} {:>18} {:>16}",
        "",
        format!("at most in any {WINDOW:?}"),
        "last departure"
    );
    for case in CASES {
        let file = draw(&store, &case).await;
        files.push(file.with_context(|| case.name)?);
    }
    let plots = files.iter().map(|file| (&*file.name, &*file.text));
    files.push(File {
        text: data_uris("example `algorithms`", plots),
        name: "data-uris.md".to_owned(),
    });
    if args.check {
        check(&files)
    } else {
        write(&files)
    }
}

async fn draw(store: &MemoryStore, case: &Case) -> anyhow::Result<File> {
    let quota: Quota = case.quota.parse()?;
    let run = burst::run(store, quota).await?;
    let Run { departures, .. } = &run;
    let most = History::from_iter(departures.iter().copied()).most_in_any(WINDOW);
    let last = departures.last().context("no request departed")?;
    println!("{:<27} {most:>18} {last:>16.3?}", case.name);
    if most > case.bound.into() {
        bail!(
            "{most} requests departed in one window, more than the bound of {}",
            case.bound
        );
    }
    let windows = match quota.counted_by() {
        Algorithm::FixedWindow { start } => Windows::of(start, departures),
        _ => Windows::default(),
    };
    Ok(File {
        name: format!("{}.svg", case.name),
        text: plot::draw(case.quota, &run, &windows, most)?,
    })
}

fn write(files: &[File]) -> anyhow::Result<()> {
    fs::create_dir_all(FOLDER)?;
    for File { name, text } in files {
        let path = Path::new(FOLDER).join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("wrote {} files to {FOLDER}", files.len());
    Ok(())
}

fn check(files: &[File]) -> anyhow::Result<()> {
    let differs = |file: &&File| {
        let found = fs::read_to_string(Path::new(FOLDER).join(&file.name));
        !found.is_ok_and(|found| found == file.text)
    };
    let differing: Vec<_> = files.iter().filter(differs).collect();
    if !differing.is_empty() {
        let names: Vec<_> = differing.iter().map(|file| &*file.name).collect();
        bail!(
            "outdated in {FOLDER}: {}; run without --check, and review the new files",
            names.join(", ")
        );
    }
    println!("all {} files are up to date", files.len());
    Ok(())
}

//! Cost per permit of one hot key by the number of processes: [`measure`].

use std::time::Duration;

use crate::hot::Level;
use crate::replica::{LIMIT, WINDOW};
use tower_throttle_benches::support::{Cell, Output, Progress, Table};

pub(crate) const PROCESSES: [u32; 4] = [1, 2, 4, 8];
const CALLERS: u32 = 64;
const TIME: Duration = Duration::from_secs(3);
/// Calls per permit do not depend on the number of processes, because each process has the same number of callers.
const MOST_CALLS_RATIO: f64 = 1.5;

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<()> {
    let mut table = Table::new(
        "processes on one hot key, 64 callers each",
        &[
            "processes",
            "permits per second",
            "permits per redis call",
            "us in scripts per permit",
            "us of redis CPU per permit",
            "us of client CPU per permit",
            "most in any 10 ms",
        ],
    );
    let mut levels = Vec::new();
    for processes in PROCESSES {
        progress.begin(&format!("processes, {processes}"));
        let level = Level::of(processes, CALLERS, output.options().time(TIME)).await?;
        table.row([
            Cell::Count(processes.into()),
            Cell::Count(level.permits_per_second as u64),
            Cell::Figure(1.0 / level.calls),
            Cell::Ratio(level.script),
            Cell::Ratio(level.server),
            Cell::Ratio(level.user + level.system),
            Cell::Count(level.most),
        ]);
        levels.push(level);
    }
    output.table(&table);
    let growth = levels[PROCESSES.len() - 1].calls / levels[0].calls;
    let claim = "processes, calls per permit of 8 to those of 1";
    output.at_most(claim, growth, MOST_CALLS_RATIO);
    let most = levels.iter().map(|level| level.most).max().unwrap_or(0);
    let claim = format!("processes, most in any {WINDOW:?}");
    output.at_most(claim, most as f64, LIMIT.into());
    Ok(())
}

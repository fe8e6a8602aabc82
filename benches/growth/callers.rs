//! Cost per permit of one hot key by the number of callers in one process: [`measure`].

use std::time::Duration;

use crate::hot::Level;
use tower_throttle_benches::support::{Cell, Output, Progress, Table};

pub(crate) const CALLERS: [u32; 4] = [1, 8, 64, 512];
const TIME: Duration = Duration::from_secs(3);
/// Waiting requests share the next call, so the cost per permit falls with the number of callers.
const MOST_RATIO: f64 = 0.1;

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<()> {
    let mut table = Table::new(
        "callers of one hot key in one process",
        &[
            "callers",
            "permits per second",
            "permits per redis call",
            "us per permit",
            "us of the process",
            "us in the kernel for it",
            "us of redis CPU",
            "us in scripts",
        ],
    );
    let mut levels = Vec::new();
    for callers in CALLERS {
        progress.begin(&format!("callers, {callers}"));
        let level = Level::of(1, callers, output.options().time(TIME)).await?;
        table.row([
            Cell::Count(callers.into()),
            Cell::Count(level.permits_per_second as u64),
            Cell::Figure(1.0 / level.calls),
            Cell::Ratio(1e6 / level.permits_per_second),
            Cell::Ratio(level.user),
            Cell::Ratio(level.system),
            Cell::Ratio(level.server),
            Cell::Ratio(level.script),
        ]);
        levels.push(level);
    }
    output.table(&table);
    let growth = |figure: fn(&Level) -> f64| figure(&levels[3]) / figure(&levels[0]);
    let claim = |what| format!("callers, {what} per permit of 512 to that of 1");
    output.at_most(
        claim("time"),
        growth(|level| 1.0 / level.permits_per_second),
        MOST_RATIO,
    );
    output.at_most(claim("redis CPU"), growth(|level| level.server), MOST_RATIO);
    Ok(())
}

//! `throttle top`: a live view of the busy keys.

use std::io::{self, IsTerminal as _, Write};
use std::num::NonZeroU64;
use std::time::Duration;

use clap::ValueEnum;
use tokio::time::{MissedTickBehavior, interval};

use self::board::{Board, Page};
use self::order::Sort;
use crate::connect::Server;
use crate::failure::Failure;
use crate::output::{Output, Report};

mod board;
mod cut;
mod live;
mod order;
mod screen;
#[cfg(unix)]
mod signals;
#[cfg(not(unix))]
#[path = "top/no_signals.rs"]
mod signals;
mod tally;

/// Show the busy keys, and refresh them
///
/// Each refresh scans the names of about 2,000 keys, and reads their values, and those of the keys on the screen. This
/// takes Redis about 5 ms; `--budget` changes the number. If there are more keys, several refreshes cover them, and `top`
/// keeps the busiest 1,000.
///
/// In the terminal, `s` sorts by the next column, `/` edits the filter, arrows scroll, `q` quits.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Time between refreshes
    #[arg(long, short, value_name = "TIME", default_value = "2s", value_parser = crate::time::parse)]
    interval: Duration,

    /// Exit after this many refreshes
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,

    /// Sort order
    #[arg(long, value_enum, default_value_t = Sort::Used)]
    sort: Sort,

    /// Show only rows with this text in the key or the policy
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Maximum number of keys with `--json`
    #[arg(long, value_name = "N", default_value_t = 50)]
    rows: usize,

    /// Number of keys to scan per refresh
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    budget: u32,

    #[command(flatten)]
    server: Server,
}

/// The sort order and the filter.
#[derive(Debug, Clone)]
struct View {
    sort: Sort,
    filter: String,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if !output.is_json() && !io::stdout().is_terminal() {
        let message =
            "standard output is not a terminal: pass `--json` to print a line per refresh";
        return Err(Failure::usage(message));
    }
    if args.interval.is_zero() {
        return Err(Failure::usage("the interval must be greater than zero"));
    }
    let store = args.server.connect().await?;
    let board = Board::new(store, args.budget as usize);
    let view = View {
        sort: args.sort,
        filter: args.filter.unwrap_or_default(),
    };
    let count = args.count.map_or(u64::MAX, NonZeroU64::get);
    if output.is_json() {
        print(board, &view, args.rows, args.interval, count, output).await
    } else {
        live::run(board, view, args.interval, count).await
    }
}

/// Prints a line per refresh, until the reader closes the pipe.
async fn print(
    mut board: Board,
    view: &View,
    rows: usize,
    every: Duration,
    count: u64,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..count {
        ticks.tick().await;
        let shown = board.shown(view, rows);
        board.refresh(shown).await?;
        output.show(&board.page(view, rows))?;
        if output.is_closed() {
            break;
        }
    }
    Ok(())
}

impl Report for Page {
    /// JSON too: text output exists only in the terminal.
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(text, self).map_err(io::Error::from)
    }
}

impl View {
    fn next_sort(&mut self) {
        let all = Sort::value_variants();
        let place = all.iter().position(|it| *it == self.sort);
        self.sort = all[place.map_or(0, |place| (place + 1) % all.len())];
    }
}

//! `throttle top`: which keys are busy, as it changes.

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

/// Show the keys that are busy, as it changes
///
/// Each refresh looks at the names of some keys and reads some kilobytes of each at most, and again those that
/// it shows: of 2,000 keys, unless told otherwise by `--budget`, which takes Redis some 5 ms. Where there are more,
/// it takes several refreshes until all were seen, and the busiest 1,000 are remembered meanwhile.
///
/// In the terminal, `s` sorts by the next column, `/` begins a text to filter by, arrows scroll, `q` quits.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long from one refresh to the next
    #[arg(long, short, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    interval: Duration,

    /// End after so many refreshes
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,

    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Used)]
    sort: Sort,

    /// Only keys with this text in their name, or in the id of their policy
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// How many keys to print at most with `--json`; a terminal shows as many as it has lines
    #[arg(long, value_name = "N", default_value_t = 50)]
    rows: usize,

    /// How many keys to look at in each refresh, besides those that are shown
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    budget: u32,

    #[command(flatten)]
    server: Server,
}

/// What is shown, and how.
#[derive(Debug, Clone)]
struct View {
    sort: Sort,
    filter: String,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if !output.is_json() && !io::stdout().is_terminal() {
        let no_terminal = Failure::usage("there is no terminal to show it on");
        return Err(no_terminal.hint("`--json` prints a line for each refresh"));
    }
    if args.interval.is_zero() {
        return Err(Failure::usage("an interval of no time is none"));
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

/// A line for each refresh, until nobody reads any more.
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
    /// Not for people, who have the terminal.
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

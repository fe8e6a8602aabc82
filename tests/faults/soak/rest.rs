//! Rest after load: what is left, and the judgment of what has departed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::judge::REACH;
use super::load::Rest;
use super::phase::Phases;
use super::quotas::LONGEST;
use crate::stage::{PATIENCE, PROCESSES};
use support::errors::panic_text;
use support::keyspace;
use support::tally::{Count, Tally};

const MS: Duration = Duration::from_millis(1);

/// How long a process may take until it is at rest.
const RESTING: Duration = Duration::from_secs(50);

/// How long the last command for a key is remembered.
const COMMANDED: Duration = Duration::from_secs(60);

/// The mark that strict recovery keeps.
const CREATED: &str = "throttle:created";

impl Phases<'_> {
    /// Stops the load, and looks for what is left.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        self.note("rest");
        self.tell("rest");
        for place in 0..PROCESSES {
            let Some(process) = &self.stage.processes[place] else {
                continue;
            };
            let line = process.child.next_line(RESTING);
            let words: Vec<_> = line.splitn(5, ' ').collect();
            let rest = Rest::parse(&words[..4].join(" "));
            let (number, tally) = (process.number, Tally::parse(words[4]));
            complaints.extend(left(number, rest));
            self.wait_for(number, tally.of(Count::Departed));
            complaints.extend(accounts(number, &tally, self.kept.count(number)));
        }
        complaints.extend(self.kept.judge());
        let expire = || keyspace::assert_all_expire(&self.stage.servers[0]);
        complaints.extend(catch_unwind(AssertUnwindSafe(expire)).err().map(panic_text));
        if complaints.is_empty() {
            complaints.extend(self.outlives());
        }
        complaints
    }

    /// Requests may still be on their way.
    fn wait_for(&mut self, number: usize, departed: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.kept.count(number) < departed && Instant::now() < deadline {
            self.collect(MS * 5);
        }
    }

    /// No key is kept for longer than its departures count, or the last command for it, and a quarter of that.
    fn outlives(&mut self) -> Option<String> {
        let server = &self.stage.servers[0];
        let names = keyspace::names(server);
        let names = names.iter().filter(|name| *name != CREATED);
        let lifetimes = names.map(|name| {
            let millis: i64 = server.command(&["PTTL", name]);
            (Duration::from_millis(millis.unsigned_abs()), name)
        });
        let (longest, name) = lifetimes.max()?;
        self.stayed = self.stayed.max(longest);
        (longest > (REACH + 2 * LONGEST + COMMANDED) * 5 / 4)
            .then(|| format!("a key is kept for {longest:?}: {name}"))
    }
}

fn left(number: usize, rest: Rest) -> Vec<String> {
    let Rest {
        lines,
        is_out,
        tasks,
        tasks_at_first,
    } = rest;
    [
        (lines > 0).then(|| format!("{lines} queues are left in process {number}")),
        is_out.then(|| format!("the store is out, says process {number}")),
        (tasks > tasks_at_first).then(|| {
            format!("{tasks} tasks are left in process {number}, of {tasks_at_first} at first")
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Checks that each request had one outcome, and that only requests with a permit departed.
pub(crate) fn accounts(number: usize, tally: &Tally, arrived: u64) -> Vec<String> {
    let others = [
        Count::Expired,
        Count::Forfeited,
        Count::Dropped,
        Count::Refused,
    ];
    let others: u64 = others.into_iter().map(|it| tally.of(it)).sum();
    let ended = tally.answered() + others;
    [
        ("requests are lost", tally.of(Count::Lost), 0),
        ("errors are of an unknown kind", tally.of(Count::Other), 0),
        ("requests have ended", ended, tally.of(Count::Asked)),
        ("requests arrived", arrived, tally.of(Count::Departed)),
    ]
    .into_iter()
    .filter(|(_, is, should)| is != should)
    .map(|(what, is, should)| format!("{is} and not {should} {what} in process {number}"))
    .collect()
}

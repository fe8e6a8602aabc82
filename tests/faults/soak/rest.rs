//! Rest after load: what is left, and the judgment of what has departed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::kept::LONGEST;
use super::load::Rest;
use super::phase::Phases;
use crate::stage::{PATIENCE, PROCESSES};
use support::child;
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

impl Phases {
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
            let (number, (rest, tally)) = (process.number, child::parse::<(Rest, Tally)>(&line));
            if !rest.is_at_rest() || rest.is_out {
                complaints.push(format!("process {number} is not at rest: {rest:?}"));
            }
            self.wait_for(number, tally.of(Count::Departed));
            complaints.extend(tally.accounts(number, self.kept.count(number)));
        }
        complaints.extend(self.kept.judge(self.set));
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
    fn outlives(&self) -> Option<String> {
        let server = &self.stage.servers[0];
        let names = keyspace::names(server).into_iter();
        let lifetimes = names.filter(|name| *name != CREATED).map(|name| {
            let millis: i64 = server.command(&["PTTL", &name]);
            (Duration::from_millis(millis.unsigned_abs()), name)
        });
        let (longest, name) = lifetimes.max()?;
        (longest > (3 * LONGEST + COMMANDED) * 5 / 4)
            .then(|| format!("a key is kept for {longest:?}: {name}"))
    }
}

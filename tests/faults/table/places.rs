//! Faults while requests are in progress.

use super::network::PARTITIONED;
use super::server::{BACK_EMPTY, PROMOTED};
use super::{CLUSTER, LOCAL, PROCESS_KILLED, PROCESS_STOPPED, SENTINELS, memory, server, strict};
use crate::places::{CALLERS, LIMIT, Places};
use crate::prelude::*;

/// Work that begins again soon.
const SHORT: Duration = Duration::from_secs(2);

const LONG: Duration = Duration::from_secs(8);

/// Beside those with places of the store, each process lets its share depart.
const SHARES: usize = LIMIT + LIMIT / PROCESSES * PROCESSES;

const FLUSHALL: Fault = memory::FLUSHALL.lasts(Lasts::For(SHORT));

pub(crate) const ALL: &[Places] = &[
    Places::of(Fault::PLAIN, LIMIT).takes(SHORT),
    Places::of(FLUSHALL, 2 * LIMIT).takes(SHORT),
    Places::of(strict("FLUSHALL, strict", FLUSHALL), LIMIT).takes(SHORT),
    Places::of(BACK_EMPTY, 2 * LIMIT),
    Places::of(strict("kill -9, back empty, strict", BACK_EMPTY), LIMIT),
    Places::of(PROMOTED, 2 * LIMIT),
    Places::of(strict("promoted replica, strict", PROMOTED), LIMIT),
    // All leases end.
    Places::of(longer(server::STOPPED), 2 * LIMIT),
    Places::of(longer(server::STOPPED), LIMIT).aborts("SIGSTOP, SIGCONT, Lost::Abort"),
    // The leases of one process end.
    Places::of(longer(PARTITIONED), LIMIT + CALLERS),
    Places::of(longer(PARTITIONED), LIMIT).aborts("nothing passes to one of three, Lost::Abort"),
    Places::of(longer(PROCESS_KILLED), LIMIT),
    Places::of(longer(PROCESS_STOPPED), LIMIT + CALLERS),
    Places::of(LOCAL, SHARES),
    Places::of(SENTINELS, 2 * LIMIT),
    Places::of(strict("strict", CLUSTER), LIMIT).aborts("cluster failover, strict, Lost::Abort"),
];

impl Places {
    /// So many requests may be in progress at once.
    const fn of(fault: Fault, most: usize) -> Self {
        Self {
            name: fault.name,
            fault,
            lost: Lost::Continue,
            takes: LONG,
            most,
        }
    }

    const fn takes(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    const fn aborts(mut self, name: &'static str) -> Self {
        (self.name, self.lost) = (name, Lost::Abort);
        self
    }
}

const fn longer(fault: Fault) -> Fault {
    fault.lasts(Lasts::For(Duration::from_millis(4_500)))
}

pub(crate) fn find(name: &str) -> &'static Places {
    let fault = ALL.iter().find(|it| it.name == name);
    fault.expect("a fault of this name")
}

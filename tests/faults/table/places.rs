//! Faults while requests are in progress.

use std::time::Duration;

use tower_throttle::Lost::{self, Abort, Continue};

use super::network::PARTITIONED;
use super::server::{BACK_EMPTY, PROMOTED};
use super::{
    CLUSTER, LOCAL, PROCESS_KILLED, PROCESS_STOPPED, SENTINELS, be_strict, memory, server,
};
use crate::fault::{Fault, Lasts};
use crate::places::{CALLERS, LIMIT, Places};
use crate::stage::PROCESSES;

/// Work that begins again soon.
const SHORT: Duration = Duration::from_secs(2);

/// Work that takes longer than a lease.
const LONG: Duration = Duration::from_secs(8);

/// Beside those with places of the store, each process lets its share depart.
const SHARES: usize = LIMIT + LIMIT / PROCESSES * PROCESSES;

const FLUSHALL: Fault = lasting(SHORT, memory::FLUSHALL);

pub(crate) const ALL: &[Places] = &[
    row("none", Fault::PLAIN, SHORT, Continue, LIMIT),
    row("FLUSHALL", FLUSHALL, SHORT, Continue, 2 * LIMIT),
    row("FLUSHALL, strict", strict(FLUSHALL), SHORT, Continue, LIMIT),
    row("kill -9, back empty", BACK_EMPTY, LONG, Continue, 2 * LIMIT),
    row(
        "kill -9, back empty, strict",
        strict(BACK_EMPTY),
        LONG,
        Continue,
        LIMIT,
    ),
    row("promoted replica", PROMOTED, LONG, Continue, 2 * LIMIT),
    row(
        "promoted replica, strict",
        strict(PROMOTED),
        LONG,
        Continue,
        LIMIT,
    ),
    // All leases end.
    row(
        "SIGSTOP, SIGCONT",
        longer(server::STOPPED),
        LONG,
        Continue,
        2 * LIMIT,
    ),
    row(
        "SIGSTOP, SIGCONT, Lost::Abort",
        longer(server::STOPPED),
        LONG,
        Abort,
        LIMIT,
    ),
    // The leases of one process end.
    row(
        "nothing passes to one of three",
        longer(PARTITIONED),
        LONG,
        Continue,
        LIMIT + CALLERS,
    ),
    row(
        "nothing passes to one of three, Lost::Abort",
        longer(PARTITIONED),
        LONG,
        Abort,
        LIMIT,
    ),
    row(
        "one of three killed",
        longer(PROCESS_KILLED),
        LONG,
        Continue,
        LIMIT,
    ),
    row(
        "one of three stopped",
        longer(PROCESS_STOPPED),
        LONG,
        Continue,
        LIMIT + CALLERS,
    ),
    row("Outage::Local", LOCAL, LONG, Continue, SHARES),
    row("sentinel failover", SENTINELS, LONG, Continue, 2 * LIMIT),
    row(
        "cluster failover, strict, Lost::Abort",
        strict(CLUSTER),
        LONG,
        Abort,
        LIMIT,
    ),
];

/// The most that may be in progress at once comes last.
const fn row(name: &'static str, fault: Fault, takes: Duration, lost: Lost, most: usize) -> Places {
    Places {
        name,
        fault,
        lost,
        takes,
        most,
    }
}

const fn strict(fault: Fault) -> Fault {
    Fault {
        limiter: be_strict,
        ..fault
    }
}

/// The fault lasts longer than a lease.
const fn longer(fault: Fault) -> Fault {
    lasting(Duration::from_millis(4_500), fault)
}

const fn lasting(span: Duration, fault: Fault) -> Fault {
    Fault {
        lasts: Lasts::For(span),
        ..fault
    }
}

/// By its name.
pub(crate) fn find(name: &str) -> &'static Places {
    let mut all = ALL.iter();
    all.find(|it| it.name == name)
        .expect("a fault of this name")
}

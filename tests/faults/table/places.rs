//! Faults while requests are in progress.

use std::time::Duration;

use tower_throttle::Lost;

use super::recovery::be_strict;
use super::{deployments, memory, network, outage, process, server};
use crate::fault::{Fault, Lasts};
use crate::places::{CALLERS, LIMIT, Places};
use crate::stage::PROCESSES;

/// Work that begins again soon.
const SHORT: Duration = Duration::from_secs(2);

/// Work that takes longer than a lease.
const LONG: Duration = Duration::from_secs(8);

const PLAIN: Places = Places {
    name: "none",
    fault: Fault::PLAIN,
    lost: Lost::Continue,
    takes: SHORT,
    most: LIMIT,
};

pub(crate) const ALL: &[Places] = &[
    PLAIN,
    Places {
        name: "FLUSHALL",
        most: 2 * LIMIT,
        ..FLUSHALL
    },
    strict("FLUSHALL, strict", FLUSHALL),
    Places {
        name: "kill -9, back empty",
        most: 2 * LIMIT,
        ..BACK_EMPTY
    },
    strict("kill -9, back empty, strict", BACK_EMPTY),
    Places {
        name: "promoted replica",
        most: 2 * LIMIT,
        ..PROMOTED
    },
    strict("promoted replica, strict", PROMOTED),
    // All leases end.
    Places {
        name: "SIGSTOP, SIGCONT",
        most: 2 * LIMIT,
        ..longer(server::STOPPED)
    },
    Places {
        name: "SIGSTOP, SIGCONT, Lost::Abort",
        lost: Lost::Abort,
        ..longer(server::STOPPED)
    },
    // The leases of one process end.
    Places {
        name: "nothing passes to one of three",
        most: LIMIT + CALLERS,
        ..longer(network::PARTITIONED)
    },
    Places {
        name: "nothing passes to one of three, Lost::Abort",
        lost: Lost::Abort,
        ..longer(network::PARTITIONED)
    },
    Places {
        name: "one of three killed",
        ..longer(process::KILLED)
    },
    Places {
        name: "one of three stopped",
        most: LIMIT + CALLERS,
        ..longer(process::STOPPED)
    },
    Places {
        name: "Outage::Local",
        fault: outage::LOCAL,
        takes: LONG,
        // Beside those with places of the store, each process lets its share depart.
        most: LIMIT + LIMIT / PROCESSES * PROCESSES,
        ..PLAIN
    },
    Places {
        name: "sentinel failover",
        fault: deployments::SENTINELS,
        takes: LONG,
        most: 2 * LIMIT,
        ..PLAIN
    },
    strict("cluster failover, strict, Lost::Abort", CLUSTER),
];

const FLUSHALL: Places = Places {
    fault: Fault {
        lasts: Lasts::For(SHORT),
        ..memory::FLUSHALL
    },
    ..PLAIN
};

const PROMOTED: Places = Places {
    fault: server::PROMOTED,
    takes: LONG,
    ..PLAIN
};

const CLUSTER: Places = Places {
    fault: deployments::CLUSTER,
    lost: Lost::Abort,
    takes: LONG,
    ..PLAIN
};

const BACK_EMPTY: Places = Places {
    fault: server::BACK_EMPTY,
    takes: LONG,
    ..PLAIN
};

const fn strict(name: &'static str, places: Places) -> Places {
    Places {
        name,
        fault: Fault {
            limiter: be_strict,
            ..places.fault
        },
        ..places
    }
}

/// The fault lasts longer than a lease.
const fn longer(fault: Fault) -> Places {
    Places {
        fault: Fault {
            lasts: Lasts::For(Duration::from_millis(4_500)),
            ..fault
        },
        takes: LONG,
        ..PLAIN
    }
}

/// By its name.
pub(crate) fn find(name: &str) -> &'static Places {
    let mut all = ALL.iter();
    all.find(|it| it.name == name)
        .expect("a fault of this name")
}

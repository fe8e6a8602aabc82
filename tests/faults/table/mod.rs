//! All faults, each a few lines.

mod memory;
mod network;
pub(crate) mod places;
mod server;

use support::sentinel::NAME;
use support::signal::{resume, stop};
use tower_throttle::Outage;

use crate::load::LIMIT;
use crate::prelude::*;

const NONE: &[Fault] = &[Fault::PLAIN.until_departed(2)];

/// In the order in which the documentation lists them.
pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    [
        NONE,
        network::FAULTS,
        server::FAULTS,
        memory::FAULTS,
        PROCESS,
        OUTAGE,
        RECOVERY,
        DEPLOYMENTS,
    ]
    .into_iter()
    .flatten()
}

/// Those of a single server that keeps nothing on disk, by default policies: their names.
pub(crate) fn of_soak() -> Vec<&'static str> {
    let left_out = [
        "replies cut off, without scripts",
        "half-open connections",
        "kill -9, back with all data",
        "kill -9, then LOADING",
    ];
    let tables = [network::FAULTS, server::FAULTS, memory::FAULTS, PROCESS];
    let names = tables.into_iter().flatten().map(|it| it.name);
    names.filter(|name| !left_out.contains(name)).collect()
}

pub(crate) fn find(name: &str) -> &'static Fault {
    let fault = all().find(|it| it.name == name);
    fault.expect("a fault of this name")
}

const PROCESS: &[Fault] = &[PROCESS_KILLED, PROCESS_STOPPED];

const PROCESS_KILLED: Fault = Fault::new("one of three killed", |setup| {
    let process = setup.processes[0].take().expect("it runs");
    // As a power failure would.
    drop(process.child);
})
.heal(|it| it.processes[0] = Some(it.spawn(0)));

const PROCESS_STOPPED: Fault =
    Fault::new("one of three stopped", |it| stop(first(it))).heal(|it| resume(first(it)));

/// The id of the first process.
fn first(setup: &Setup) -> u32 {
    setup.processes[0].as_ref().expect("it runs").child.pid()
}

/// An outage under each policy that is not the default.
const OUTAGE: &[Fault] = &[
    Fault {
        limiter: |limiter| limiter.outage(Outage::Allow),
        ..server::DURABLE.named("Outage::Allow").most(|_| None)
    },
    LOCAL,
];

const LOCAL: Fault = Fault {
    limiter: |limiter| {
        let share = 1.0 / PROCESSES as f64;
        limiter.outage(Outage::Local { share })
    },
    // Beside those with slots of the store, each process lets its share go.
    most: |_| Some(LIMIT + LIMIT / PROCESSES as u64 * PROCESSES as u64),
    ..server::DURABLE.named("Outage::Local")
};

/// Losses of state under strict recovery: never more than the quota allows.
const RECOVERY: &[Fault] = &[
    strict("FLUSHALL, strict", memory::FLUSHALL),
    strict("DEL, strict", memory::DEL),
    strict("eviction, strict", memory::EVICTION),
    strict("kill -9, back empty, strict", server::BACK_EMPTY),
    Fault {
        inject: |setup| {
            (memory::FLUSHALL.inject)(setup);
            network::cut_replies(setup, b"EVALSHA");
        },
        ..strict("FLUSHALL, replies cut off, strict", memory::FLUSHALL)
    },
];

const fn strict(name: &'static str, fault: Fault) -> Fault {
    Fault {
        limiter: |limiter| limiter.recovery(Recovery::Strict),
        ..fault.named(name).most(|_| Some(LIMIT))
    }
}

/// Servers that take the place of others.
const DEPLOYMENTS: &[Fault] = &[
    SENTINELS,
    strict("sentinel failover, strict", SENTINELS),
    CLUSTER,
    strict("cluster failover, strict", CLUSTER),
];

const CLUSTER: Fault = Fault {
    connect: |urls| Box::pin(async move { RedisStore::connect_cluster(urls.split(',')).await }),
    ..Fault::new("cluster failover", |setup| {
        let cluster = setup.cluster.as_mut().expect("the setup has one");
        let primary = cluster.primary_of("throttle:{key-0}");
        cluster.servers[primary].kill9();
        setup.killed = Some(primary);
    })
}
.on(Setup::cluster)
.heal(|setup| {
    let cluster = setup.cluster.as_ref().expect("the setup has one");
    let killed = setup.killed.expect("it was injected");
    cluster.fails_over("throttle:{key-0}", killed);
})
.forgets();

const SENTINELS: Fault = Fault {
    connect: |urls| {
        Box::pin(async move { RedisStore::connect_sentinel(urls.split(','), NAME).await })
    },
    ..Fault::new("sentinel failover", |setup| {
        let sentinels = setup.sentinels.as_mut().expect("the setup has them");
        let primary = sentinels.primary();
        sentinels.servers[primary].kill9();
        setup.killed = Some(primary);
    })
}
.on(Setup::sentinels)
.heal(|setup| {
    let sentinels = setup.sentinels.as_ref().expect("the setup has them");
    sentinels.fails_over(setup.killed.expect("it was injected"));
})
.forgets();

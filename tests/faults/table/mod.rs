//! All faults, each a few lines.

mod memory;
mod network;
pub(crate) mod places;
mod server;

use support::sentinel::NAME;
use tower_throttle::store::RedisStore;
use tower_throttle::{LimiterBuilder, Outage, Recovery};

use crate::fault::{Fault, Lasts};
use crate::load::LIMIT;
use crate::stage::{PROCESSES, Process, Stage};

/// The baseline.
const NONE: &[Fault] = &[Fault {
    name: "none",
    lasts: Lasts::UntilDeparted(2 * LIMIT as usize),
    ..Fault::PLAIN
}];

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
    let besides = [
        "replies cut off, without scripts",
        "half-open connections",
        "kill -9, back with all data",
        "kill -9, then LOADING",
    ];
    let tables = [network::FAULTS, server::FAULTS, memory::FAULTS, PROCESS];
    let names = tables.into_iter().flatten().map(|it| it.name);
    names.filter(|name| !besides.contains(name)).collect()
}

/// By its name.
pub(crate) fn find(name: &str) -> &'static Fault {
    all()
        .find(|it| it.name == name)
        .expect("a fault of this name")
}

const PROCESS: &[Fault] = &[PROCESS_KILLED, PROCESS_STOPPED];

const PROCESS_KILLED: Fault = Fault {
    name: "one of three killed",
    inject: |stage| {
        let process = stage.processes[0].take().expect("it runs");
        process.child.kill9();
    },
    heal: |stage| stage.respawn(0),
    ..Fault::PLAIN
};

const PROCESS_STOPPED: Fault = Fault {
    name: "one of three stopped",
    inject: |stage| first(stage).child.sigstop(),
    heal: |stage| first(stage).child.sigcont(),
    ..Fault::PLAIN
};

fn first(stage: &Stage) -> &Process {
    stage.processes[0].as_ref().expect("it runs")
}

/// An outage under each policy that is not the default.
const OUTAGE: &[Fault] = &[
    Fault {
        name: "Outage::Allow",
        limiter: |limiter| limiter.outage(Outage::Allow),
        most: |_| None,
        ..server::DURABLE
    },
    LOCAL,
];

const LOCAL: Fault = Fault {
    name: "Outage::Local",
    limiter: |limiter| {
        let share = 1.0 / PROCESSES as f64;
        limiter.outage(Outage::Local { share })
    },
    // Beside those with slots of the store, each process lets its share go.
    most: |_| Some(LIMIT + LIMIT / PROCESSES as u64 * PROCESSES as u64),
    ..server::DURABLE
};

/// Losses of state under strict recovery: never more than the quota allows.
const RECOVERY: &[Fault] = &[
    strict("FLUSHALL, strict", memory::FLUSHALL),
    strict("DEL, strict", memory::DEL),
    strict("eviction, strict", memory::EVICTION),
    strict("kill -9, back empty, strict", server::BACK_EMPTY),
    Fault {
        inject: |stage| {
            (memory::FLUSHALL.inject)(stage);
            network::cut_replies(stage, b"EVALSHA");
        },
        ..strict("FLUSHALL, replies cut off, strict", memory::FLUSHALL)
    },
];

const fn strict(name: &'static str, fault: Fault) -> Fault {
    Fault {
        name,
        limiter: be_strict,
        most: as_ever,
        ..fault
    }
}

fn be_strict(limiter: LimiterBuilder) -> LimiterBuilder {
    limiter.recovery(Recovery::Strict)
}

fn as_ever(_: &Stage) -> Option<u64> {
    Some(LIMIT)
}

/// Servers that take the place of others.
const DEPLOYMENTS: &[Fault] = &[
    SENTINELS,
    strict("sentinel failover, strict", SENTINELS),
    CLUSTER,
    strict("cluster failover, strict", CLUSTER),
];

const CLUSTER: Fault = Fault {
    name: "cluster failover",
    stage: Stage::cluster,
    connect: |urls| Box::pin(async move { RedisStore::connect_cluster(urls.split(',')).await }),
    inject: |stage| {
        let cluster = stage.cluster.as_mut().expect("the stage has one");
        let primary = cluster.primary_of("throttle:{key-0}");
        cluster.servers[primary].kill9();
        stage.killed = Some(primary);
    },
    heal: |stage| {
        let cluster = stage.cluster.as_ref().expect("the stage has one");
        let killed = stage.killed.expect("it was injected");
        cluster.fails_over("throttle:{key-0}", killed);
    },
    ..Fault::FORGETS
};

const SENTINELS: Fault = Fault {
    name: "sentinel failover",
    stage: Stage::sentinels,
    connect: |urls| {
        Box::pin(async move { RedisStore::connect_sentinel(urls.split(','), NAME).await })
    },
    inject: |stage| {
        let sentinels = stage.sentinels.as_mut().expect("the stage has them");
        let primary = sentinels.primary();
        sentinels.servers[primary].kill9();
        stage.killed = Some(primary);
    },
    heal: |stage| {
        let sentinels = stage.sentinels.as_ref().expect("the stage has them");
        sentinels.fails_over(stage.killed.expect("it was injected"));
    },
    ..Fault::FORGETS
};

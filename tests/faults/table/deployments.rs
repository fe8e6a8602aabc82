//! Servers that take the place of others.

use tower_throttle::store::RedisStore;

use super::recovery::be_strict;
use crate::fault::Fault;
use crate::load::LIMIT;
use crate::stage::Stage;
use support::sentinel::NAME;

pub(super) const FAULTS: &[Fault] = &[
    SENTINELS,
    Fault {
        name: "sentinel failover, strict",
        limiter: be_strict,
        most: |_| Some(LIMIT),
        ..SENTINELS
    },
    CLUSTER,
    Fault {
        name: "cluster failover, strict",
        limiter: be_strict,
        most: |_| Some(LIMIT),
        ..CLUSTER
    },
];

pub(super) const CLUSTER: Fault = Fault {
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

pub(super) const SENTINELS: Fault = Fault {
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

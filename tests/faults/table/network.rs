//! Faults between the processes and their server.

use std::time::Duration;

use tower_throttle::store::RedisStore;

use crate::fault::{Fault, Lasts};
use crate::load::LIMIT;
use crate::stage::Stage;
use support::proxy::Proxy;
use support::redis_server::wait_until;

/// Each way.
const SLOW: Duration = Duration::from_millis(200);

/// Bytes of a reply that arrive before it is cut, in turn.
const CUT_AFTER: [usize; 4] = [0, 1, 4, 20];

pub(super) const PARTITIONED: Fault = Fault {
    name: "nothing passes to one of three",
    inject: |stage| stage.proxies[0].hold(),
    heal: |stage| stage.proxies[0].resume(),
    ..Fault::PLAIN
};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "connections cut",
        inject: |stage| {
            for _ in 0..3 {
                stage.each(Proxy::cut);
                wait_for_connections(stage);
            }
        },
        lasts: Lasts::UntilDeparted(LIMIT as usize),
        ..Fault::PLAIN
    },
    Fault {
        name: "replies cut off",
        inject: |stage| cut_replies(stage, b"EVALSHA"),
        lasts: Lasts::For(Duration::ZERO),
        ..Fault::PLAIN
    },
    Fault {
        name: "replies cut off, without scripts",
        store: without_scripts,
        inject: |stage| cut_replies(stage, b"EXEC"),
        lasts: Lasts::For(Duration::ZERO),
        ..Fault::PLAIN
    },
    Fault {
        name: "nothing passes for a while",
        inject: |stage| stage.each(Proxy::hold),
        heal: |stage| stage.each(Proxy::resume),
        ..Fault::PLAIN
    },
    PARTITIONED,
    Fault {
        name: "half-open connections, until TCP gives up",
        inject: |stage| stage.each(Proxy::swallow),
        heal: |stage| {
            stage.each(Proxy::heal);
            stage.each(Proxy::cut);
        },
        ..Fault::PLAIN
    },
    Fault {
        name: "half-open connections",
        inject: |stage| stage.each(Proxy::swallow),
        heal: |stage| stage.each(Proxy::heal),
        ..Fault::PLAIN
    },
    Fault {
        name: "connections refused",
        inject: |stage| {
            stage.each(Proxy::refuse);
            stage.each(Proxy::cut);
        },
        heal: |stage| stage.each(Proxy::accept),
        ..Fault::PLAIN
    },
    Fault {
        name: "connections reset when made",
        inject: |stage| {
            // Nobody listens there.
            stage.each(|it| it.lead_to(1));
            stage.each(Proxy::cut);
        },
        heal: |stage| {
            let port = stage.servers[0].port();
            stage.each(|it| it.lead_to(port));
        },
        ..Fault::PLAIN
    },
    Fault {
        name: "200 ms each way",
        store: |store| store.timeout(Duration::from_secs(5)),
        inject: |stage| stage.each(|it| it.delay(SLOW)),
        // Requests with grants depart first.
        lasts: Lasts::UntilDeparted(4 * LIMIT as usize),
        heal: |stage| stage.each(|it| it.delay(Duration::ZERO)),
        ..Fault::PLAIN
    },
];

/// All processes are connected again.
fn wait_for_connections(stage: &Stage) {
    wait_until("connections are made again", || {
        stage.proxies.iter().all(|it| it.open() > 0)
    });
}

/// One after the other by each of the proxies, of commands that take slots.
pub(super) fn cut_replies(stage: &mut Stage, command: &[u8]) {
    let cut: Vec<_> = stage.proxies.iter().map(Proxy::cut_replies).collect();
    for (before, after) in CUT_AFTER.into_iter().enumerate() {
        let proxies = stage.proxies.iter();
        proxies.for_each(|it| it.cut_reply(command, after));
        wait_until("replies are cut", || {
            let mut proxies = stage.proxies.iter().zip(&cut);
            proxies.all(|(it, cut)| it.cut_replies() > cut + before)
        });
    }
}

fn without_scripts(store: RedisStore) -> RedisStore {
    store.scripting(false).expect("a way to connect")
}

//! Faults of the server, and commands of its operator.

use std::thread;
use std::time::Duration;

use redis::RedisResult;

use crate::fault::{Fault, Lasts};
use crate::load::LIMIT;
use crate::stage::{Stage, refusal};
use support::redis_server::{RedisServer, wait_until};

/// Keeps what it has said, whatever happens.
const APPEND_ONLY: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// An outage, and nothing else.
pub(super) const DURABLE: Fault = Fault {
    name: "kill -9, back with all data",
    stage: || Stage::new(&APPEND_ONLY),
    inject: |stage| stage.server().kill9(),
    heal: |stage| stage.server().restart(),
    ..Fault::PLAIN
};

/// Nothing is left.
pub(super) const BACK_EMPTY: Fault = Fault {
    name: "kill -9, back empty",
    inject: |stage| stage.server().kill9(),
    heal: |stage| stage.server().restart(),
    ..Fault::FORGETS
};

pub(super) const STOPPED: Fault = Fault {
    name: "SIGSTOP, SIGCONT",
    inject: |stage| stage.server().sigstop(),
    heal: |stage| stage.server().sigcont(),
    ..Fault::PLAIN
};

pub(super) const PROMOTED: Fault = Fault {
    name: "promoted replica",
    stage: Stage::replicated,
    inject: |stage| stage.server().kill9(),
    heal: |stage| {
        stage.servers[1].command::<()>(&["REPLICAOF", "NO", "ONE"]);
        let port = stage.servers[1].port();
        stage.proxies.iter().for_each(|it| it.lead_to(port));
    },
    ..Fault::FORGETS
};

pub(super) const FAULTS: &[Fault] = &[
    BACK_EMPTY,
    DURABLE,
    Fault {
        name: "kill -9, then LOADING",
        stage: || {
            let slowly = ["--key-load-delay", "100"];
            let stage = Stage::new(&[&APPEND_ONLY[..], &slowly].concat());
            let fill = "for i = 1, 15000 do redis.call('SET', 'filler:' .. i, 'x') end";
            stage.servers[0].command::<()>(&["EVAL", fill, "0"]);
            stage
        },
        inject: |stage| {
            stage.server().kill9();
            stage.server().restart();
            let errors: String = stage.server().command(&["INFO", "errorstats"]);
            assert!(errors.contains("errorstat_LOADING"), "{errors}");
        },
        lasts: Lasts::For(Duration::ZERO),
        ..Fault::PLAIN
    },
    STOPPED,
    Fault {
        name: "CLIENT KILL",
        inject: |stage| {
            for _ in 0..3 {
                wait_until("all are connected", || killed(&stage.servers[0]) > 0);
            }
        },
        lasts: Lasts::UntilDeparted(LIMIT as usize),
        ..Fault::PLAIN
    },
    Fault {
        name: "CLIENT PAUSE",
        // It is over by itself.
        inject: |stage| stage.server().command(&["CLIENT", "PAUSE", "1500", "ALL"]),
        heal: |stage| assert_eq!(stage.server().command::<String>(&["PING"]), "PONG"),
        ..Fault::PLAIN
    },
    Fault {
        name: "SCRIPT FLUSH",
        inject: |stage| {
            for _ in 0..3 {
                stage.server().command::<()>(&["SCRIPT", "FLUSH"]);
                wait_until("scripts are loaded again", || {
                    let info: String = stage.servers[0].command(&["INFO", "memory"]);
                    !info.contains("number_of_cached_scripts:0")
                });
            }
        },
        lasts: Lasts::UntilDeparted(LIMIT as usize),
        ..Fault::PLAIN
    },
    Fault {
        name: "BUSY",
        stage: || Stage::new(&["--lua-time-limit", "50"]),
        inject: |stage| {
            let client = stage.server().client();
            stage.beside.push(thread::spawn(move || {
                let mut connection = client.get_connection().expect("a connection");
                let ended: RedisResult<()> = redis::cmd("EVAL")
                    .arg("while true do end")
                    .arg(0)
                    .query(&mut connection);
                ended.expect_err("it is killed");
            }));
            wait_until("other clients get BUSY", || {
                refusal(&stage.servers[0], &["PING"]).as_deref() == Some("BUSY")
            });
        },
        heal: |stage| stage.server().command(&["SCRIPT", "KILL"]),
        ..Fault::PLAIN
    },
    Fault {
        name: "READONLY",
        stage: Stage::replicated,
        inject: |stage| {
            stage.servers[1].command::<()>(&["REPLICAOF", "NO", "ONE"]);
            stage.replicate(0, 1);
            let refusal = refusal(&stage.servers[0], &["SET", "a", "b"]);
            assert_eq!(refusal.as_deref(), Some("READONLY"));
        },
        heal: |stage| stage.server().command(&["REPLICAOF", "NO", "ONE"]),
        // The replica may not have the last writes.
        ..Fault::FORGETS
    },
    PROMOTED,
];

/// How many clients are gone.
fn killed(server: &RedisServer) -> usize {
    ["normal", "pubsub"]
        .map(|kind| server.command::<usize>(&["CLIENT", "KILL", "TYPE", kind]))
        .into_iter()
        .sum()
}

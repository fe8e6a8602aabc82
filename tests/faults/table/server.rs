//! Faults of the server, and commands of its operator.

use redis::RedisResult;

use super::network::NO_TIME;
use crate::prelude::*;

/// Keeps what it has said, whatever happens.
const APPEND_ONLY: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// An outage, and nothing else.
pub(super) const DURABLE: Fault =
    killed("kill -9, back with all data").on(|| Setup::new(&APPEND_ONLY));

/// Nothing is left.
pub(super) const BACK_EMPTY: Fault = killed("kill -9, back empty").forgets();

const fn killed(name: &'static str) -> Fault {
    Fault::new(name, |it| it.server().kill9()).heal(|it| it.server().restart())
}

pub(super) const STOPPED: Fault =
    Fault::new("SIGSTOP, SIGCONT", |it| it.server().sigstop()).heal(|it| it.server().sigcont());

pub(super) const PROMOTED: Fault = Fault::new("promoted replica", |it| it.server().kill9())
    .on(Setup::replicated)
    .heal(|setup| {
        setup.servers[1].command::<()>(&["REPLICAOF", "NO", "ONE"]);
        let port = setup.servers[1].port();
        setup.each(|it| it.lead_to(port));
    })
    .forgets();

pub(super) const FAULTS: &[Fault] = &[
    BACK_EMPTY,
    DURABLE,
    Fault::new("kill -9, then LOADING", |setup| {
        setup.server().kill9();
        setup.server().restart();
        let errors: String = setup.server().command(&["INFO", "errorstats"]);
        assert!(errors.contains("errorstat_LOADING"), "{errors}");
    })
    .on(|| {
        let slowly = ["--key-load-delay", "100"];
        let setup = Setup::new(&[&APPEND_ONLY[..], &slowly].concat());
        let fill = "for i = 1, 15000 do redis.call('SET', 'filler:' .. i, 'x') end";
        setup.servers[0].command::<()>(&["EVAL", fill, "0"]);
        setup
    })
    .lasts(NO_TIME),
    STOPPED,
    Fault::new("CLIENT KILL", |setup| {
        for _ in 0..3 {
            wait_until("all are connected", || kill(&setup.servers[0]) > 0);
        }
    })
    .until_departed(1),
    // It is over by itself.
    Fault::new("CLIENT PAUSE", |it| {
        it.server().command(&["CLIENT", "PAUSE", "1500", "ALL"])
    })
    .heal(|it| assert_eq!(it.server().command::<String>(&["PING"]), "PONG")),
    Fault::new("SCRIPT FLUSH", |setup| {
        for _ in 0..3 {
            setup.server().command::<()>(&["SCRIPT", "FLUSH"]);
            let scripts = || setup.servers[0].info("number_of_cached_scripts");
            wait_until("scripts are loaded again", || scripts() > 0);
        }
    })
    .until_departed(1),
    Fault::new("BUSY", |setup| {
        let client = setup.server().client();
        setup.threads.push(thread::spawn(move || {
            let mut connection = client.get_connection().expect("a connection");
            let mut script = redis::cmd("EVAL");
            script.arg("while true do end").arg(0);
            let ended: RedisResult<()> = script.query(&mut connection);
            ended.expect_err("it is killed");
        }));
        wait_until("other clients get BUSY", || {
            refusal(&setup.servers[0], &["PING"]).as_deref() == Some("BUSY")
        });
    })
    .on(|| Setup::new(&["--lua-time-limit", "50"]))
    .heal(|it| it.server().command(&["SCRIPT", "KILL"])),
    Fault::new("READONLY", |setup| {
        setup.servers[1].command::<()>(&["REPLICAOF", "NO", "ONE"]);
        setup.replicate(0, 1);
        let refusal = refusal(&setup.servers[0], &["SET", "a", "b"]);
        assert_eq!(refusal.as_deref(), Some("READONLY"));
    })
    .on(Setup::replicated)
    .heal(|it| it.server().command(&["REPLICAOF", "NO", "ONE"]))
    // The replica may not have the last writes.
    .forgets(),
    PROMOTED,
];

/// How many clients are gone.
fn kill(server: &RedisServer) -> usize {
    let kill = |kind| server.command::<usize>(&["CLIENT", "KILL", "TYPE", kind]);
    kill("normal") + kill("pubsub")
}

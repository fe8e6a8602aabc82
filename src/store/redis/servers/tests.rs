//! The connections against real servers.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value};
use tokio::runtime::{self, Runtime};
use tokio::time::{Instant, sleep, timeout};

use super::{CommandAnswer, Servers, exclusive};
use crate::store::StoreError;
use crate::store::redis::servers;

use support::errors::until_ok;
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::sentinel::{NAME, Sentinels};

mod clusters;
mod errors;
mod exclusive;
mod messages;

/// A deadline that only a defect passes.
const LONG: Duration = Duration::from_secs(20);

fn soon() -> Instant {
    Instant::now() + LONG
}

fn pipe(commands: &[&[&str]]) -> Pipeline {
    let mut pipe = redis::pipe();
    for words in commands {
        pipe.cmd(words[0]).arg(&words[1..]);
    }
    pipe
}

async fn run(servers: &Servers, commands: &[&[&str]]) -> Result<Vec<CommandAnswer>, StoreError> {
    servers.run(commands[0][1], &pipe(commands), soon()).await
}

async fn get(servers: &Servers) -> Result<CommandAnswer, StoreError> {
    let answers = run(servers, &[&["GET", "key"]]).await?;
    Ok(answers.into_iter().next().unwrap())
}

async fn get_until_up(servers: &Servers) -> CommandAnswer {
    until_ok(async || get(servers).await).await
}

fn proxied() -> (RedisServer, Proxy, Servers) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let servers = servers::at(&proxy.url()).unwrap();
    (server, proxy, servers)
}

fn start_runtime() -> Runtime {
    let builder = &mut runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test]
async fn connects_once_for_concurrent_first_calls_and_not_before() {
    let (_server, proxy, servers) = proxied();
    assert_eq!(servers.shard("key"), 0);
    assert_eq!(proxy.made(), 0);
    let answers = join_all((0..50).map(|_| get(&servers))).await;
    for answered in answers {
        let origin = answered.unwrap().origin;
        assert!(origin.sent <= origin.received);
    }
    assert_eq!(proxy.made(), 1);
}

#[tokio::test]
async fn the_server_number_is_that_of_the_process_or_0_without_the_right_to_ask() {
    let mut server = RedisServer::start();
    let [one, other] = [(); 2].map(|()| servers::at(&server.url()).unwrap());
    let before = get(&one).await.unwrap().origin;
    let same = get(&other).await.unwrap().origin;
    assert_eq!(before.server, same.server);
    server.command::<()>(&["ACL", "SETUSER", "poor", "on", ">word", "~*", "+get"]);
    let url = server.url().replace("redis://", "redis://poor:word@");
    let poor = get(&servers::at(&url).unwrap()).await.unwrap();
    assert_eq!((poor.origin.server, poor.value), (0, Value::Nil));
    server.restart();
    let after = get_until_up(&one).await.origin;
    assert!(after.server != before.server && before.server != 0);
}

/// Nothing is sent twice.
#[tokio::test]
async fn a_late_or_lost_answer_has_an_unknown_outcome() {
    let (_server, proxy, servers) = proxied();
    let increment = pipe(&[&["INCR", "key"]]);
    get(&servers).await.unwrap();
    let mut sent = 0;
    let faults: [fn(&Proxy); 3] = [Proxy::hold, Proxy::drop_all, |proxy| {
        proxy.cut_reply(b"INCR", 0)
    }];
    // The reply is cut once the command has passed the proxy, which a busy machine delays.
    let waits = [Duration::from_secs(1), Duration::from_millis(500), LONG];
    for (nth, (fault, waits)) in faults.into_iter().zip(waits).enumerate() {
        let made = proxy.made();
        fault(&proxy);
        let is_kept = nth == 0;
        let deadline = Instant::now() + waits;
        let error = servers.run("key", &increment, deadline).await.unwrap_err();
        assert!(error.is_outage() && error.is_outcome_unknown(), "{error:?}");
        match is_kept {
            true => proxy.resume(),
            false => proxy.heal(),
        }
        let after = get_until_up(&servers).await;
        assert_eq!(proxy.made() == made, is_kept, "{nth}");
        // The second one never arrived.
        sent += u8::from(nth != 1);
        assert_eq!(after.value, Value::BulkString(sent.to_string().into()));
    }
    let late = servers.run("key", &increment, Instant::now()).await;
    assert!(!late.unwrap_err().is_outcome_unknown());
    let unchanged = get(&servers).await.unwrap().value;
    assert_eq!(unchanged, Value::BulkString(sent.to_string().into()));
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_unused_fails_no_call() {
    let (_server, proxy, servers) = proxied();
    get(&servers).await.unwrap();
    proxy.cut();
    sleep(Duration::from_millis(1_100)).await;
    get(&servers).await.unwrap();
    assert_eq!(proxy.made(), 2);
}

#[tokio::test]
async fn a_server_that_is_down_is_tried_with_pauses_until_it_is_up() {
    let (mut server, proxy, servers) = proxied();
    server.kill9();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        let error = get(&servers).await.unwrap_err();
        assert!(error.is_outage() && !error.is_outcome_unknown());
        tokio::task::yield_now().await;
    }
    // Attempts are at least 50, 100, 200 and 400 ms apart.
    let most = begun.elapsed().as_millis() / 400 + 4;
    assert!(proxy.made() as u128 <= most, "{} connections", proxy.made());
    server.restart();
    get_until_up(&servers).await;
}

#[test]
fn connections_survive_the_end_of_their_runtime() {
    let (_server, proxy, servers) = proxied();
    for connections in 1..=3 {
        start_runtime().block_on(get(&servers)).unwrap();
        assert_eq!(proxy.made(), connections);
    }
}

#[test]
fn an_attempt_that_ends_with_its_runtime_is_made_again_on_another() {
    let (_server, proxy, servers) = proxied();
    proxy.hold();
    let first = start_runtime();
    let waiting = first.spawn({
        let servers = servers.clone();
        async move { get(&servers).await.map(drop) }
    });
    while proxy.made() == 0 {
        std::thread::yield_now();
    }
    let second = start_runtime();
    let joined = second.spawn(async move { get(&servers).await.map(drop) });
    first.shutdown_background();
    proxy.resume();
    second.block_on(joined).unwrap().unwrap();
    drop(waiting);
}

#[test]
fn an_attempt_on_a_runtime_that_is_not_polled_holds_up_no_other() {
    let idle = runtime::Builder::new_current_thread().enable_all().build();
    let (idle, sentinels) = (idle.unwrap(), Sentinels::start());
    let proxy = Proxy::start(sentinels.sentinels[0].port());
    let by_sentinel = servers::by_sentinels([proxy.url()], NAME).unwrap();
    let (_server, direct, at) = proxied();
    let ping = async |servers: &Servers| {
        let deadline = Instant::now() + Duration::from_millis(100);
        let ping = pipe(&[&["PING"]]);
        servers.run("key", &ping, deadline).await.map(drop)
    };
    for (proxy, servers) in [(&proxy, &by_sentinel), (&direct, &at)] {
        proxy.hold();
        assert!(idle.block_on(ping(servers)).is_err());
        proxy.resume();
        start_runtime().block_on(until_ok(async || ping(servers).await));
    }
    // To connect takes longer than a call waits.
    let (proxy, ping) = (direct, async || ping(&at).await);
    proxy.delay(Duration::from_millis(40));
    let runtimes = [(); 2].map(|()| start_runtime());
    std::thread::scope(|scope| {
        for runtime in &runtimes {
            scope.spawn(|| runtime.block_on(until_ok(ping)));
        }
    });
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_connected_to_again() {
    let (old, proxy, servers) = proxied();
    let new = RedisServer::start();
    let before = get(&servers).await.unwrap().origin;
    old.command::<()>(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    proxy.lead_to(new.port());
    let answers = run(&servers, &[&["SET", "key", "1"]]).await.unwrap();
    let error = answers[0].refusal().unwrap();
    let is_known = !error.is_outcome_unknown();
    assert!(error.is_outage() && is_known, "{error:?}");
    let answers = run(&servers, &[&["SET", "key", "2"]]).await.unwrap();
    assert_eq!(answers[0].value, Value::Okay);
    assert_ne!(answers[0].origin.server, before.server);
}

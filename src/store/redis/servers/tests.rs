//! The connections against real servers.

use std::io::Write as _;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value};
use tokio::runtime::{self, Runtime};
use tokio::time::{Instant, sleep, timeout};

use super::{CommandAnswer, Servers, refused};
use crate::store::StoreError;

use support::errors::everything;
use support::proxy::Proxy;
use support::redis_server::RedisServer;

mod clusters;
mod exclusive;
mod messages;
mod secrets;

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

/// Repeats the call while it fails.
async fn get_until_up(servers: &Servers) -> CommandAnswer {
    let deadline = soon();
    loop {
        match get(servers).await {
            Ok(answered) => return answered,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn refusal(answered: &CommandAnswer) -> StoreError {
    match &answered.value {
        Value::ServerError(error) => refused(error),
        other => panic!("{other:?}"),
    }
}

/// A server behind a proxy.
fn proxied() -> (RedisServer, Proxy, Servers) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let servers = Servers::at(&proxy.url()).unwrap();
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
    let first = answers[0].as_ref().unwrap().origin;
    for answered in answers {
        let origin = answered.unwrap().origin;
        assert_eq!(origin.connection, first.connection);
        assert!(origin.sent <= origin.received);
    }
    assert_eq!(proxy.made(), 1);
}

#[tokio::test]
async fn one_refused_command_does_not_fail_the_others() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    let commands: [&[&str]; 4] = [
        &["SET", "key", "text"],
        &["INCR", "key"],
        &["LPUSH", "key", "1"],
        &["GET", "key"],
    ];
    let answers = run(&servers, &commands).await.unwrap();
    assert_eq!(answers[3].value, Value::BulkString(b"text".to_vec()));
    assert!(!refusal(&answers[1]).is_outage());
    assert!(refusal(&answers[2]).is_unrecognized_value());
    assert!(!refusal(&answers[2]).is_outcome_unknown());
}

#[tokio::test]
async fn the_server_number_is_that_of_the_process() {
    let mut server = RedisServer::start();
    let [one, other] = [(); 2].map(|()| Servers::at(&server.url()).unwrap());
    let before = get(&one).await.unwrap().origin;
    let same = get(&other).await.unwrap().origin;
    assert_ne!(before.server, 0);
    assert_eq!(before.server, same.server);
    assert_ne!(before.connection, same.connection);

    server.restart();
    let after = get_until_up(&one).await.origin;
    assert_ne!(after.server, before.server);
    assert_ne!(after.connection, before.connection);
}

#[tokio::test]
async fn the_server_number_is_0_without_the_right_to_ask() {
    let server = RedisServer::start();
    server.command::<()>(&["ACL", "SETUSER", "poor", "on", ">word", "~*", "+get"]);
    let url = server.url().replace("redis://", "redis://poor:word@");
    let answered = get(&Servers::at(&url).unwrap()).await.unwrap();
    assert_eq!(answered.origin.server, 0);
    assert_eq!(answered.value, Value::Nil);
}

#[tokio::test]
async fn a_server_that_is_down_is_tried_with_pauses_until_it_is_up() {
    let mut server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let servers = Servers::at(&proxy.url()).unwrap();
    server.stop();
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

#[tokio::test]
async fn a_late_answer_has_an_unknown_outcome_and_keeps_a_connection_that_answers() {
    let (_server, proxy, servers) = proxied();
    let before = get(&servers).await.unwrap().origin;
    proxy.hold();
    let set = pipe(&[&["SET", "key", "text"]]);
    let deadline = Instant::now() + Duration::from_secs(1);
    let error = servers.run("key", &set, deadline).await.unwrap_err();
    assert!(error.is_outage() && error.is_outcome_unknown(), "{error:?}");
    proxy.resume();
    let after = get(&servers).await.unwrap();
    assert_eq!(after.origin.connection, before.connection);
    assert_eq!(after.value, Value::BulkString(b"text".to_vec()));
}

#[tokio::test]
async fn a_connection_that_answers_nothing_is_replaced() {
    let (_server, proxy, servers) = proxied();
    let before = get(&servers).await.unwrap().origin;
    proxy.swallow();
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = servers
        .run("key", &pipe(&[&["GET", "key"]]), deadline)
        .await;
    assert!(error.unwrap_err().is_outcome_unknown());
    proxy.heal();
    let after = get_until_up(&servers).await.origin;
    assert_ne!(after.connection, before.connection);
    assert_eq!(after.server, before.server);
}

#[tokio::test]
async fn a_reply_that_was_lost_has_an_unknown_outcome_and_is_not_asked_for_again() {
    let (_server, proxy, servers) = proxied();
    get(&servers).await.unwrap();
    proxy.cut_reply(b"INCR", 0);
    let error = run(&servers, &[&["INCR", "number"]]).await.unwrap_err();
    assert!(error.is_outage() && error.is_outcome_unknown(), "{error:?}");
    let answers = run(&servers, &[&["INCR", "number"]]).await.unwrap();
    assert_eq!(answers[0].value, Value::Int(2));
}

#[tokio::test]
async fn a_deadline_that_has_passed_sends_nothing() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    get(&servers).await.unwrap();
    let set = pipe(&[&["SET", "key", "text"]]);
    let error = servers.run("key", &set, Instant::now()).await.unwrap_err();
    assert!(!error.is_outcome_unknown(), "{error:?}");
    assert_eq!(get(&servers).await.unwrap().value, Value::Nil);
}

#[test]
fn connections_survive_the_end_of_their_runtime() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    let connections = [(); 3].map(|()| {
        let runtime = start_runtime();
        runtime.block_on(get(&servers)).unwrap().origin.connection
    });
    assert!(connections[0] < connections[1] && connections[1] < connections[2]);
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

#[tokio::test]
async fn a_server_that_became_a_replica_is_connected_to_again() {
    let (old, proxy, servers) = proxied();
    let new = RedisServer::start();
    let before = get(&servers).await.unwrap().origin;
    old.command::<()>(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    proxy.lead_to(new.port());
    let answers = run(&servers, &[&["SET", "key", "1"]]).await.unwrap();
    let error = refusal(&answers[0]);
    assert!(
        error.is_outage() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    let answers = run(&servers, &[&["SET", "key", "2"]]).await.unwrap();
    assert_eq!(answers[0].value, Value::Okay);
    assert_ne!(answers[0].origin.server, before.server);
}

//! Servers of a cluster.

use super::super::slots::{Redirect, SLOTS, read, slot_of};
use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use support::cluster::Cluster;

fn value(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[tokio::test]
async fn only_the_commands_of_a_slot_that_moved_are_sent_again() {
    let cluster = Cluster::start_with(0);
    let servers = servers::cluster(cluster.urls()).unwrap();
    let [a, other, _] = cluster.keys_of_each();
    let (from, to) = (cluster.primary_of(&a), cluster.primary_of(&other));
    let is_near = |it: &String| slot_of(it) != slot_of(&a) && cluster.primary_of(it) == from;
    let b = (0..).map(|nth| nth.to_string()).find(is_near).unwrap();
    assert_eq!(servers.shard(&a), u64::MAX);
    let names = [(&a, 1), (&b, 1), (&b, 2)].map(|(tag, nth)| format!("{{{tag}}}{nth}"));
    let before = run(&servers, &[&["GET", &names[0]]]).await.unwrap();
    assert_eq!(servers.shard(&a), servers.shard(&b));
    let [from, to] = [from, to].map(|it| &cluster.servers[it]);
    let (slot, id): (_, String) = (slot_of(&b).to_string(), to.command(&["CLUSTER", "MYID"]));
    for server in [to, from] {
        server.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    }
    let commands: [&[&str]; 4] = [
        &["INCR", &names[0]],
        &["INCR", &names[1]],
        &["GET", &names[0]],
        &["INCR", &names[2]],
    ];
    let answers = run(&servers, &commands).await.unwrap();
    let values: Vec<_> = answers.iter().map(|it| it.value.clone()).collect();
    let one = Value::Int(1);
    assert_eq!(values, [one.clone(), one.clone(), value("1"), one]);
    let origins: Vec<_> = answers.iter().map(|it| it.origin.server).collect();
    let first = before[0].origin.server;
    assert!(origins[0] == first && origins[2] == first, "{origins:?}");
    assert!(origins[1] != first && origins[1] == origins[3]);
    assert!(answers[1].origin.sent >= answers[0].origin.received);
    assert_ne!(servers.shard(&a), servers.shard(&b));
    assert_eq!(servers.primaries(soon()).await.unwrap().len(), 3);
}

/// A server that takes the others for the holders of the slots, and says so after a while.
async fn fake(listener: TcpListener, holders: [u16; 2], answer: &'static str, delay: u64) {
    let range = |first, last, port| {
        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
    };
    let ranges = range(0, 8_191, holders[0]) + &range(8_192, 16_383, holders[1]);
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let slots = format!("*2\r\n{ranges}");
        tokio::spawn(async move {
            let mut bytes = vec![0; 4_096];
            while let Ok(count @ 1..) = socket.read(&mut bytes).await {
                let text = String::from_utf8_lossy(&bytes[..count]);
                let words: Vec<_> = text.split("\r\n").collect();
                for at in (0..words.len()).filter(|at| words[*at].starts_with('*')) {
                    let answer = match words[at + 2] {
                        "CLUSTER" => &slots,
                        "GET" => answer,
                        _ => "+OK\r\n",
                    };
                    sleep(Duration::from_millis(delay)).await;
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
    }
}

#[tokio::test]
async fn the_map_of_a_server_that_has_lost_the_others_does_not_count() {
    let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let [lost, other, new] = [bind().await, bind().await, bind().await];
    let [old_port, other_port, new_port] =
        [&lost, &other, &new].map(|it| it.local_addr().unwrap().port());
    let seeds = [old_port, other_port].map(|port| format!("redis://127.0.0.1:{port}/"));
    let servers = servers::cluster(seeds).unwrap();
    let down = "-CLUSTERDOWN The cluster is down\r\n";
    // It is the nearest one.
    tokio::spawn(fake(lost, [old_port, other_port], down, 0));
    tokio::spawn(fake(other, [new_port, other_port], "+OK\r\n", 5));
    tokio::spawn(fake(new, [new_port, other_port], "+OK\r\n", 5));
    let mut names = (0..).map(|nth| nth.to_string());
    let name = names.find(|it| slot_of(it) < 8_192).unwrap();
    until_ok(async || {
        let answers = run(&servers, &[&["GET", &name]]).await.unwrap();
        answers[0].refusal().map_or(Ok(()), Err)
    })
    .await;
}

#[test]
fn slots_are_those_of_the_specification() {
    // As `CLUSTER KEYSLOT` returns them.
    for (name, slot) in [
        ("123456789", 12_739),
        ("foo", 12_182),
        ("throttle:{foo}:10/s", 12_182),
        ("{}foo", 9_500),
        ("foo{}{bar}", 8_363),
        ("foo{{bar}}zap", 4_015),
        ("{user1000}.following", 3_443),
    ] {
        assert_eq!(slot_of(name), slot, "{name}");
    }
}

#[test]
fn an_unknown_host_is_that_of_the_server_that_answered() {
    let slots = |host: Value, last| {
        let node = Value::Array(vec![host, Value::Int(7_000), value("id")]);
        let range = vec![Value::Int(0), Value::Int(last), node];
        Value::Array(vec![Value::Array(range)])
    };
    for (host, read_as) in [
        (value("10.0.0.1"), "10.0.0.1"),
        (value("?"), "asked"),
        (Value::Nil, "asked"),
    ] {
        let expected = vec![(0, 5_460, (read_as.to_owned(), 7_000))];
        assert_eq!(read(slots(host, 5_460), "asked"), Some(expected));
    }
    let too_many = slots(Value::Nil, i64::from(SLOTS));
    for invalid in [too_many, Value::Nil, Value::Array(vec![Value::Nil])] {
        assert_eq!(read(invalid, "asked"), None);
    }
    for (text, expected) in [
        ("MOVED 3999 10.0.0.1:6381", Some((3_999, "10.0.0.1", 6_381))),
        ("MOVED 3999 :6381", Some((3_999, "asked", 6_381))),
        ("ASK 3999 ::1:6381", Some((3_999, "::1", 6_381))),
        ("MOVED 3999", None),
        ("MOVED 99999 10.0.0.1:1", None),
        ("MOVED 1 a:99999", None),
        ("CLUSTERDOWN x", None),
    ] {
        let expected = expected.map(|(slot, host, port)| Redirect {
            slot,
            address: (host.to_owned(), port),
            is_ask: text.starts_with("ASK"),
        });
        let error = errors::server_error(text);
        assert_eq!(Redirect::of(&error, "asked"), expected, "{text}");
    }
}

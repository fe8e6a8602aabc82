//! Servers of a cluster, and the primary that sentinels name.

use super::super::slots::{Redirect, SLOTS, read, slot_of};
use super::support::cluster::Cluster;
use super::support::sentinel::{NAME, Sentinels};
use super::*;

/// A cluster of two primaries, without replicas, that move slots at once.
struct Pair([RedisServer; 2]);

impl Pair {
    /// The first one holds all slots.
    fn start() -> Self {
        let pair = Self([(); 2].map(|()| {
            let bus = support::ports::spare_port().to_string();
            RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus])
        }));
        let [first, second] = &pair.0;
        first.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let bus: Vec<String> = second.command(&["CONFIG", "GET", "cluster-port"]);
        let port = second.port().to_string();
        first.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus[1]]);
        let deadline = Instant::now() + LONG;
        let is_ok = |server: &RedisServer| {
            let info: String = server.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        };
        while !pair.0.iter().all(is_ok) {
            assert!(Instant::now() < deadline, "the cluster does not form");
            std::thread::sleep(Duration::from_millis(20));
        }
        pair
    }

    fn id(&self, server: usize) -> String {
        self.0[server].command(&["CLUSTER", "MYID"])
    }

    /// Moves a slot without keys to the second server.
    fn move_slot(&self, name: &str) {
        let (slot, id) = (slot_of(name).to_string(), self.id(1));
        for server in self.0.iter().rev() {
            server.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    /// Leaves the slot between the two servers. Keys that do not exist are served by the second.
    fn begin_to_move(&self, name: &str) {
        let slot = slot_of(name).to_string();
        let set = |server: usize, what, id: String| {
            self.0[server].command::<()>(&["CLUSTER", "SETSLOT", &slot, what, &id]);
        };
        set(1, "IMPORTING", self.id(0));
        set(0, "MIGRATING", self.id(1));
    }
}

fn value(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[tokio::test]
async fn only_the_commands_of_a_slot_that_moved_are_sent_again() {
    let pair = Pair::start();
    let servers = Servers::cluster([pair.0[0].url()]).unwrap();
    assert_eq!(servers.shard("a"), u64::MAX);
    let sets: [&[&str]; 4] = [
        &["INCR", "{a}1"],
        &["INCR", "{b}1"],
        &["GET", "{a}1"],
        &["INCR", "{b}2"],
    ];
    let before = run(&servers, &[&["GET", "{a}1"]]).await.unwrap();
    assert_eq!(servers.shard("a"), servers.shard("b"));
    pair.move_slot("b");

    let answers = run(&servers, &sets).await.unwrap();
    let values: Vec<_> = answers.iter().map(|it| it.value.clone()).collect();
    assert_eq!(
        values,
        [Value::Int(1), Value::Int(1), value("1"), Value::Int(1)]
    );
    let origins: Vec<_> = answers.iter().map(|it| it.origin.server).collect();
    let first = before[0].origin.server;
    assert!(origins[0] == first && origins[2] == first, "{origins:?}");
    assert!(
        origins[1] != first && origins[1] == origins[3],
        "{origins:?}"
    );
    assert!(answers[1].origin.sent >= answers[0].origin.received);
    assert_ne!(servers.shard("a"), servers.shard("b"));
    assert_eq!(servers.each(soon()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_key_on_its_way_is_asked_for_at_its_new_server_only_this_time() {
    let pair = Pair::start();
    let servers = Servers::cluster([pair.0[0].url()]).unwrap();
    run(&servers, &[&["SET", "{b}old", "1"]]).await.unwrap();
    pair.begin_to_move("b");
    let commands: [&[&str]; 3] = [
        &["GET", "{b}old"],
        &["SET", "{b}new", "2"],
        &["GET", "{b}new"],
    ];
    let answers = run(&servers, &commands).await.unwrap();
    let values: Vec<_> = answers.iter().map(|it| it.value.clone()).collect();
    assert_eq!(values, [value("1"), Value::Okay, value("2")]);
    assert_ne!(answers[0].origin.server, answers[1].origin.server);
    assert_eq!(servers.shard("b"), servers.shard("a"));
}

#[tokio::test]
async fn an_exclusive_connection_finds_a_slot_that_moved() {
    let pair = Pair::start();
    let servers = Servers::cluster([pair.0[0].url()]).unwrap();
    let exclusive = servers.exclusive("b", soon()).await.unwrap();
    pair.move_slot("b");
    let watch = pipe(&[&["WATCH", "b"]]);
    let answers = exclusive.run(&watch, soon()).await.unwrap();
    assert!(refusal(&answers[0]).is_outage());
    let exclusive = servers.exclusive("b", soon()).await.unwrap();
    let answers = exclusive.run(&watch, soon()).await.unwrap();
    assert_eq!(answers[0].value, Value::Okay);
}

#[tokio::test]
async fn a_failover_is_noticed_and_other_servers_answer_in_between() {
    let mut cluster = Cluster::start();
    let servers = Servers::cluster(cluster.urls()).unwrap();
    let keys = cluster.keys_of_each();
    for key in &keys {
        run(&servers, &[&["SET", key, "1"]]).await.unwrap();
    }
    let shards: Vec<_> = keys.iter().map(|key| servers.shard(key)).collect();
    assert!(shards[0] != shards[1] && shards[1] != shards[2]);
    let mut scanned = 0;
    for primary in servers.each(soon()).await.unwrap() {
        let answers = primary
            .run("", &pipe(&[&["DBSIZE"]]), soon())
            .await
            .unwrap();
        assert_eq!(answers[0].value, Value::Int(1));
        scanned += 1;
    }
    assert_eq!(scanned, 3);

    let from = cluster.primary_of(&keys[0]);
    cluster.servers[from].kill9();
    let deadline = soon();
    let mut failures = 0;
    loop {
        let answers = run(&servers, &[&["SET", &keys[0], "2"]]).await;
        if answers.is_ok_and(|it| it[0].value == Value::Okay) {
            break;
        }
        failures += 1;
        let other = run(&servers, &[&["GET", &keys[1]]]).await.unwrap();
        assert!(
            !matches!(other[0].value, Value::ServerError(_)),
            "{other:?}"
        );
        assert!(Instant::now() < deadline, "there is no failover");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(failures > 0);
}

#[tokio::test]
async fn sentinels_lead_to_the_new_primary() {
    let sentinels = Sentinels::start();
    let servers = Servers::by_sentinels(sentinels.urls(), NAME).unwrap();
    let set: [&[&str]; 1] = [&["SET", "key", "1"]];
    let before = run(&servers, &set).await.unwrap();
    sentinels.fail_over();
    let deadline = soon();
    let after = loop {
        let answers = run(&servers, &set).await;
        if let Ok(answers) = answers
            && answers[0].value == Value::Okay
        {
            break answers;
        }
        assert!(Instant::now() < deadline, "the new primary is not found");
        sleep(Duration::from_millis(20)).await;
    };
    assert_ne!(after[0].origin.server, before[0].origin.server);
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
        Value::Array(vec![Value::Array(vec![
            Value::Int(0),
            Value::Int(last),
            node,
        ])])
    };
    for (host, read_as) in [
        (value("10.0.0.1"), "10.0.0.1"),
        (value(""), "asked"),
        (value("?"), "asked"),
        (Value::Nil, "asked"),
    ] {
        let address = (read_as.to_owned(), 7_000);
        assert_eq!(
            read(slots(host, 5_460), "asked"),
            Some(vec![(0, 5_460, address)])
        );
    }
    assert_eq!(read(slots(Value::Nil, i64::from(SLOTS)), "asked"), None);
    assert_eq!(read(Value::Nil, "asked"), None);
    assert_eq!(read(Value::Array(vec![Value::Nil]), "asked"), None);

    let redirect = |text: &str| {
        let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        match value {
            Value::ServerError(error) => Redirect::of(&error, "asked"),
            other => panic!("{other:?}"),
        }
    };
    let to = |host: &str, is_ask| {
        Some(Redirect {
            slot: 3_999,
            address: (host.to_owned(), 6_381),
            is_ask,
        })
    };
    assert_eq!(redirect("MOVED 3999 10.0.0.1:6381"), to("10.0.0.1", false));
    assert_eq!(redirect("MOVED 3999 :6381"), to("asked", false));
    assert_eq!(redirect("ASK 3999 ::1:6381"), to("::1", true));
    for invalid in [
        "MOVED 3999",
        "MOVED 99999 10.0.0.1:1",
        "MOVED 1 a:99999",
        "CLUSTERDOWN x",
    ] {
        assert_eq!(redirect(invalid), None, "{invalid}");
    }
}

//! Subscriptions.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::Subscription;
use super::*;
use crate::key::Key;
use crate::store::Nudged;

struct Sender(UnboundedSender<Key>);

impl Nudged for Sender {
    fn nudged(&self, key: &Key) {
        let _ = self.0.send(key.clone());
    }
}

fn subscribe(servers: &Servers) -> (Subscription, Arc<dyn Nudged>, UnboundedReceiver<Key>) {
    let (sender, messages) = unbounded_channel();
    let subscriber: Arc<dyn Nudged> = Arc::new(Sender(sender));
    let subscription = Subscription::new(servers.clone(), "channel".to_owned());
    subscription.add(Arc::downgrade(&subscriber));
    subscription.resume();
    (subscription, subscriber, messages)
}

/// Publishes until a message arrives.
async fn is_delivered(server: &RedisServer, messages: &mut UnboundedReceiver<Key>) {
    let deadline = soon();
    while messages.try_recv().is_ok() {}
    loop {
        server.command::<()>(&["PUBLISH", "channel", "text"]);
        let message = timeout(Duration::from_millis(20), messages.recv()).await;
        if let Ok(message) = message {
            assert_eq!(message.unwrap(), Key::new("text"));
            return;
        }
        assert!(Instant::now() < deadline, "no message arrives");
    }
}

async fn ends(server: &RedisServer) {
    let deadline = soon();
    while server.command::<i64>(&["PUBLISH", "channel", "text"]) > 0 {
        assert!(Instant::now() < deadline, "the subscription does not end");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_subscription_survives_a_restart_of_the_server() {
    let mut server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    let (_subscription, _subscriber, mut messages) = subscribe(&servers);
    is_delivered(&server, &mut messages).await;
    server.restart();
    is_delivered(&server, &mut messages).await;
}

#[tokio::test]
async fn a_subscription_ends_when_it_is_dropped() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    let (subscription, _subscriber, mut messages) = subscribe(&servers);
    is_delivered(&server, &mut messages).await;
    drop(subscription);
    ends(&server).await;
}

#[test]
fn a_subscription_is_resumed_on_another_runtime() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    // There is no runtime yet.
    let (subscription, _subscriber, mut messages) = subscribe(&servers);
    for runtime in [start_runtime(), start_runtime()] {
        runtime.block_on(async {
            subscription.resume();
            is_delivered(&server, &mut messages).await;
        });
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_subscribe_gets_no_messages_and_no_errors() {
    let server = RedisServer::start();
    let words = [
        "ACL", "SETUSER", "poor", "on", ">word", "~*", "+get", "+info",
    ];
    server.command::<()>(&words);
    let url = server.url().replace("redis://", "redis://poor:word@");
    let servers = Servers::at(&url).unwrap();
    let (subscription, _subscriber, mut messages) = subscribe(&servers);
    let deadline = soon();
    // Until the second attempt was refused.
    while refusals(&server) < 2 {
        assert!(Instant::now() < deadline, "nothing subscribes");
        sleep(Duration::from_millis(10)).await;
    }
    get(&servers).await.unwrap();
    drop(subscription);
    assert!(messages.try_recv().is_err());
}

/// Refused calls of `SUBSCRIBE`.
fn refusals(server: &RedisServer) -> u32 {
    let stats: String = server.command(&["INFO", "commandstats"]);
    let mut lines = stats.lines();
    let line = lines.find_map(|it| it.strip_prefix("cmdstat_subscribe:"));
    let rejected = line.and_then(|it| it.split("rejected_calls=").nth(1));
    let rejected = rejected.and_then(|it| it.split(',').next());
    rejected.map_or(0, |it| it.parse().unwrap())
}

//! Subscriptions.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::Subscription;
use super::*;
use crate::store::Nudge;

/// A nudge of the key `téxt` for a process, by its number of seven bytes.
const MESSAGE: &str = "\u{7}\0\0\0\0\0\u{8}t\u{e9}xt";

fn subscribe(servers: &Servers) -> (Subscription, UnboundedReceiver<Nudge>) {
    let (sender, messages) = unbounded_channel();
    let subscription = Subscription::new(servers.clone(), "all".to_owned());
    let nudge = Box::new(move |nudge: &Nudge| sender.send(nudge.clone()).is_ok());
    subscription.add("channel".to_owned(), nudge);
    subscription.resume();
    (subscription, messages)
}

/// Publishes until a message arrives.
async fn is_delivered(server: &RedisServer, messages: &mut UnboundedReceiver<Nudge>) {
    let deadline = soon();
    while messages.try_recv().is_ok() {}
    loop {
        server.command::<()>(&["PUBLISH", "channel", MESSAGE]);
        let message = timeout(Duration::from_millis(20), messages.recv()).await;
        if let Ok(message) = message {
            assert_eq!(message.unwrap().encode(), MESSAGE.as_bytes());
            return;
        }
        assert!(Instant::now() < deadline, "no message arrives");
    }
}

#[tokio::test]
async fn a_subscription_survives_a_restart_and_ends_when_it_is_dropped() {
    let (mut server, _proxy, servers) = proxied();
    let (subscription, mut messages) = subscribe(&servers);
    is_delivered(&server, &mut messages).await;
    server.restart();
    is_delivered(&server, &mut messages).await;
    drop(subscription);
    let deadline = soon();
    while server.command::<i64>(&["PUBLISH", "channel", MESSAGE]) > 0 {
        assert!(Instant::now() < deadline, "the subscription does not end");
        sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_subscription_is_resumed_on_another_runtime() {
    let (server, _proxy, servers) = proxied();
    // There is no runtime yet.
    let (subscription, mut messages) = subscribe(&servers);
    for runtime in [start_runtime(), start_runtime()] {
        runtime.block_on(async {
            subscription.resume();
            is_delivered(&server, &mut messages).await;
        });
    }
}

//! Subscriptions.

use super::*;

fn subscribe(servers: &Servers) -> (super::super::Subscription, UnboundedReceiver<Vec<u8>>) {
    let (sender, messages) = unbounded_channel();
    let on_message: OnMessage = Arc::new(move |message: &[u8]| {
        let _ = sender.send(message.to_vec());
    });
    (
        servers.subscribe("channel".to_owned(), on_message),
        messages,
    )
}

/// Publishes until a message arrives.
async fn is_delivered(server: &RedisServer, messages: &mut UnboundedReceiver<Vec<u8>>) {
    let deadline = soon();
    while messages.try_recv().is_ok() {}
    loop {
        server.command::<()>(&["PUBLISH", "channel", "text"]);
        let message = timeout(Duration::from_millis(20), messages.recv()).await;
        if let Ok(message) = message {
            assert_eq!(message.unwrap(), b"text");
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
    let (_subscription, mut messages) = subscribe(&servers);
    is_delivered(&server, &mut messages).await;
    server.restart();
    is_delivered(&server, &mut messages).await;
}

#[tokio::test]
async fn a_subscription_ends_when_it_is_dropped() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    let (subscription, mut messages) = subscribe(&servers);
    is_delivered(&server, &mut messages).await;
    drop(subscription);
    ends(&server).await;
}

#[test]
fn a_subscription_goes_on_with_the_next_call_on_another_runtime() {
    let server = RedisServer::start();
    let servers = Servers::at(&server.url()).unwrap();
    // There is no runtime yet.
    let (_subscription, mut messages) = subscribe(&servers);
    for runtime in [start_runtime(), start_runtime()] {
        runtime.block_on(async {
            get(&servers).await.unwrap();
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
    let (subscription, mut messages) = subscribe(&servers);
    let deadline = soon();
    // Until the second attempt was refused.
    while refusals(&server) < 2 {
        assert!(Instant::now() < deadline, "nothing subscribes");
        sleep(Duration::from_millis(10)).await;
    }
    get(&servers).await.unwrap();
    drop(subscription);
    assert!(messages.recv().await.is_none());
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

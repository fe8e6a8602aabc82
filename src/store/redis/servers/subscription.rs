//! Messages of a channel: [`Subscriber`], on a connection of its own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use redis::Value;
use redis::aio::PubSub;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Inner, Servers};
use crate::backoff;
use crate::telemetry;

/// The pause before the next connection; the span doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A dead connection that was not closed is noticed after both together.
const SILENCE: Duration = Duration::from_secs(10);
const PING: Duration = Duration::from_secs(2);

pub(crate) type OnMessage = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Ends when its last clone is dropped.
pub(crate) type Subscription = Arc<Subscriber>;

pub(crate) struct Subscriber {
    channel: String,
    on_message: OnMessage,
    /// Empty before the first start, and once the task has ended with its runtime.
    task: Mutex<JoinSet<()>>,
}

impl Servers {
    /// Calls `on_message` for each message of a channel, until the subscription is dropped.
    ///
    /// It reconnects with backoff, and misses the messages in between. It stays silent if the user may not subscribe,
    /// and on a connection that was handed in.
    pub(crate) fn subscribe(&self, channel: String, on_message: OnMessage) -> Subscription {
        let subscription = Arc::new(Subscriber {
            channel,
            on_message,
            task: Mutex::default(),
        });
        if self.makes_connections() {
            let subscriber = Arc::downgrade(&subscription);
            self.0.subscribers.lock().push(subscriber);
            self.resume_subscriptions();
        }
        subscription
    }

    /// Starts the tasks that no runtime runs: there was none, or it has shut down.
    pub(super) fn resume_subscriptions(&self) {
        let mut subscribers = self.0.subscribers.lock();
        subscribers.retain(|it| it.upgrade().map(|it| it.resume(&self.0)).is_some());
    }
}

impl Subscriber {
    /// Starts the task on the current runtime, if there is one and the task does not run.
    fn resume(&self, servers: &Arc<Inner>) {
        let mut task = self.task.lock();
        let _ = task.try_join_next();
        if task.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            let (channel, on_message) = (self.channel.clone(), self.on_message.clone());
            let running = listen(Arc::downgrade(servers), channel, on_message);
            task.spawn_on(running, &runtime);
        }
    }
}

async fn listen(servers: Weak<Inner>, channel: String, on_message: OnMessage) {
    let mut failures = 0;
    loop {
        let node = servers.upgrade().and_then(|it| it.topology.any_node());
        let Some(node) = node else {
            return;
        };
        let subscribing = node.target().subscribe(&channel);
        if let Ok(Ok(connection)) = timeout(node.target().timeout, subscribing).await {
            failures = 0;
            telemetry::subscribed(&channel, true);
            deliver(connection, &on_message).await;
        }
        if failures == 0 {
            telemetry::subscribed(&channel, false);
        }
        failures += 1;
        sleep(backoff::half_before(failures, FIRST_PAUSE, LONGEST_PAUSE)).await;
    }
}

/// Returns when the connection is lost.
async fn deliver(connection: PubSub, on_message: &OnMessage) {
    let (mut sink, mut messages) = connection.split();
    loop {
        match timeout(SILENCE, messages.next()).await {
            Ok(Some(message)) => on_message(message.get_payload_bytes()),
            Ok(None) => return,
            Err(_) => match timeout(PING, sink.ping::<Value>()).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            },
        }
    }
}

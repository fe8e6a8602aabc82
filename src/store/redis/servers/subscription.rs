//! Messages of a channel: [`Subscription`], on a connection of its own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use redis::Value;
use redis::aio::PubSub;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{Inner, target};
use crate::backoff;
use crate::telemetry;

/// The pause before the next connection; the span doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A dead connection that was not closed is noticed after both together.
const SILENCE: Duration = Duration::from_secs(10);
const PING: Duration = Duration::from_secs(2);

pub(crate) type OnMessage = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Ends when it is dropped.
#[must_use]
pub(crate) struct Subscription(Arc<Subscriber>);

pub(super) struct Subscriber {
    channel: String,
    on_message: OnMessage,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Subscription {
    pub(super) fn new(channel: String, on_message: OnMessage) -> Self {
        Self(Arc::new(Subscriber {
            channel,
            on_message,
            task: Mutex::default(),
        }))
    }

    pub(super) fn subscriber(&self) -> Weak<Subscriber> {
        Arc::downgrade(&self.0)
    }
}

impl Subscriber {
    /// Starts the task on the current runtime, if there is one and the task does not run.
    pub(super) fn resume(&self, servers: &Arc<Inner>) {
        let mut task = self.task.lock();
        if task.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (channel, on_message) = (self.channel.clone(), self.on_message.clone());
            let running = listen(Arc::downgrade(servers), channel, on_message);
            *task = Some(runtime.spawn(running));
        }
    }

    pub(super) fn end(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.end();
    }
}

async fn listen(servers: Weak<Inner>, channel: String, on_message: OnMessage) {
    let mut failures = 0;
    loop {
        let node = servers.upgrade().and_then(|it| it.topology.any_node());
        let Some(node) = node else {
            return;
        };
        let subscribing = target::subscribe(node.target(), &channel);
        if let Ok(Ok(connection)) = timeout(node.target().timeout(), subscribing).await {
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

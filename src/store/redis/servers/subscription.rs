//! Messages of a channel: [`Subscription`], on a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::Value;
use redis::aio::PubSub;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Servers;
use crate::backoff;
use crate::key::Key;
use crate::lock::Mutex;
use crate::store::Nudge;
use crate::telemetry;

/// The pause before the next connection; the span doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A dead connection that was not closed is noticed after both together.
const SILENCE: Duration = Duration::from_secs(10);
const PING: Duration = Duration::from_secs(2);

type Subscriber = Box<dyn Fn(&Nudge) -> bool + Send + Sync>;
type Subscribers = Arc<Mutex<Vec<Subscriber>>>;

/// Calls subscribers for each nudge in a channel, until it is dropped.
///
/// It reconnects with backoff, and misses the messages in between. It stays silent if the user may not subscribe,
/// and on a connection that was handed in.
pub(crate) struct Subscription {
    servers: Servers,
    channel: String,
    subscribers: Subscribers,
    is_live: Arc<AtomicBool>,
    /// Empty before the first start, and once the task has ended with its runtime.
    task: Mutex<JoinSet<()>>,
}

impl Subscription {
    pub(crate) fn new(servers: Servers, channel: String) -> Self {
        Self {
            servers,
            channel,
            subscribers: Arc::default(),
            is_live: Arc::default(),
            task: Mutex::default(),
        }
    }

    /// Returns true if messages arrive.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, subscriber: Subscriber) {
        // There is no empty key: this drops subscribers that are gone.
        let nobody = Nudge {
            key: Key::new(""),
            next: Default::default(),
        };
        deliver_nudge(&self.subscribers, &nobody);
        self.subscribers.lock().push(subscriber);
    }

    /// Starts the task on the current runtime, unless it runs or there is no runtime. To be called again, because the
    /// task ends with its runtime.
    pub(crate) fn resume(&self) {
        let mut task = self.task.lock();
        let _ = task.try_join_next();
        if task.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            let (servers, channel) = (self.servers.clone(), self.channel.clone());
            let (subscribers, is_live) = (self.subscribers.clone(), self.is_live.clone());
            task.spawn_on(listen(servers, channel, subscribers, is_live), &runtime);
        }
    }
}

/// Returns only if there is no server to subscribe to.
async fn listen(
    servers: Servers,
    channel: String,
    subscribers: Subscribers,
    is_live: Arc<AtomicBool>,
) {
    let mut failures = 0;
    while let Some(node) = servers.any_node() {
        let subscribing = node.target().subscribe(&channel);
        if let Ok(Ok(connection)) = timeout(node.target().timeout, subscribing).await {
            failures = 0;
            telemetry::subscribed(&channel, true);
            let _connected = ClearOnDrop(&is_live);
            is_live.store(true, Ordering::Relaxed);
            deliver(connection, &subscribers).await;
        }
        if failures == 0 {
            telemetry::subscribed(&channel, false);
        }
        failures += 1;
        sleep(backoff::half_before(failures, FIRST_PAUSE, LONGEST_PAUSE)).await;
    }
}

/// The task may end with its runtime.
struct ClearOnDrop<'a>(&'a AtomicBool);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Calls all subscribers, without the lock, since they may use the store.
fn deliver_nudge(subscribers: &Subscribers, nudge: &Nudge) {
    let mut all = std::mem::take(&mut *subscribers.lock());
    all.retain(|subscriber| subscriber(nudge));
    subscribers.lock().append(&mut all);
}

/// Returns when the connection is lost.
async fn deliver(connection: PubSub, subscribers: &Subscribers) {
    let (mut sink, mut messages) = connection.split();
    loop {
        match timeout(SILENCE, messages.next()).await {
            Ok(Some(message)) => {
                if let Some(nudge) = Nudge::decode(message.get_payload_bytes()) {
                    deliver_nudge(subscribers, &nudge);
                }
            }
            Ok(None) => return,
            Err(_) => match timeout(PING, sink.ping::<Value>()).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            },
        }
    }
}

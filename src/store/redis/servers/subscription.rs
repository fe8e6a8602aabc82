//! Nudges from the channels of limiters: [`Subscription`], on a connection of its own.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use redis::aio::PubSub;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Servers;
use super::node::Node;
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
const ANSWER: Duration = Duration::from_secs(2);

/// Calls subscribers for each nudge in the common channel or in that of a subscriber, until it is dropped.
///
/// It reconnects with backoff, and misses the messages in between. It stays silent if the user may not subscribe,
/// and on a connection that was handed in.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    /// Empty before the first start, and once the task has ended with its runtime.
    task: Mutex<JoinSet<()>>,
}

struct Shared {
    servers: Servers,
    /// For all subscribers.
    channel: String,
    subscribers: Mutex<Vec<Subscriber>>,
    /// A subscriber was added.
    changed: Notify,
    is_live: AtomicBool,
}

struct Subscriber {
    channel: String,
    nudge: Callback,
}

type Callback = Box<dyn Fn(&Nudge) -> bool + Send + Sync>;

impl Subscription {
    pub(crate) fn new(servers: Servers, channel: String) -> Self {
        let shared = Shared {
            servers,
            channel,
            subscribers: Mutex::default(),
            changed: Notify::new(),
            is_live: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            task: Mutex::default(),
        }
    }

    /// Returns true if messages arrive.
    pub(crate) fn is_live(&self) -> bool {
        self.shared.is_live.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, channel: String, nudge: Callback) {
        // There is no empty key: this drops subscribers that are gone.
        let nobody = Nudge {
            key: Key::new(""),
            process: 0,
        };
        self.shared.deliver(&self.shared.channel, &nobody);
        let subscriber = Subscriber { channel, nudge };
        self.shared.subscribers.lock().push(subscriber);
        self.shared.changed.notify_one();
    }

    /// Starts the task on the current runtime, unless it runs or there is no runtime. To be called again, because the
    /// task ends with its runtime.
    pub(crate) fn resume(&self) {
        let mut task = self.task.lock();
        let _ = task.try_join_next();
        if task.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            task.spawn_on(listen(self.shared.clone()), &runtime);
        }
    }
}

/// Returns only if there is no server to subscribe to.
async fn listen(shared: Arc<Shared>) {
    let mut failures = 0;
    // An earlier task may have ended with its runtime.
    shared.is_live.store(false, Ordering::Relaxed);
    while let Some(node) = shared.servers.any_node() {
        let channels = shared.channels();
        let moved = pin!(node.moved());
        let subscribing = node.target().subscribe(&channels);
        if let Ok(Ok(connection)) = timeout(node.target().timeout, subscribing).await {
            let begun = Instant::now();
            telemetry::subscribed(&shared.channel, true);
            shared.is_live.store(true, Ordering::Relaxed);
            let receiving = pin!(shared.receive(&node, connection, channels));
            select(receiving, moved).await;
            shared.is_live.store(false, Ordering::Relaxed);
            telemetry::subscribed(&shared.channel, false);
            // A server may close each connection at once.
            if begun.elapsed() > LONGEST_PAUSE {
                failures = 0;
            }
        } else if failures == 0 {
            telemetry::subscribed(&shared.channel, false);
        }
        failures += 1;
        sleep(backoff::before(failures, FIRST_PAUSE, LONGEST_PAUSE)).await;
    }
}

impl Shared {
    fn channels(&self) -> BTreeSet<String> {
        let subscribers = self.subscribers.lock();
        let own = subscribers.iter().map(|it| it.channel.clone());
        own.chain([self.channel.clone()]).collect()
    }

    /// Calls the subscribers of a channel, and drops those that are gone.
    fn deliver(&self, channel: &str, nudge: &Nudge) {
        let is_for = |it: &Subscriber| channel == self.channel || channel == it.channel;
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|it| !is_for(it) || (it.nudge)(nudge));
    }

    /// Returns when the connection is lost, or the server has left the cluster.
    async fn receive(&self, node: &Node, connection: PubSub, mut subscribed: BTreeSet<String>) {
        let (mut sink, mut messages) = connection.split();
        loop {
            let changed = pin!(self.changed.notified());
            match timeout(SILENCE, select(changed, messages.next())).await {
                Ok(Either::Right((Some(message), _))) => {
                    if let Some(nudge) = Nudge::decode(message.get_payload_bytes()) {
                        self.deliver(message.get_channel_name(), &nudge);
                    }
                }
                Ok(Either::Right((None, _))) => return,
                // A subscriber was added, or it is unknown whether the server is there.
                Ok(Either::Left(_)) | Err(_) => {
                    if !self.servers.has(node) {
                        return;
                    }
                    let channels = self.channels();
                    let gone: Vec<_> = subscribed.difference(&channels).collect();
                    let checking = async {
                        sink.subscribe(&channels).await?;
                        match gone.is_empty() {
                            true => Ok(()),
                            false => sink.unsubscribe(gone).await,
                        }
                    };
                    match timeout(ANSWER, checking).await {
                        Ok(Ok(())) => subscribed = channels,
                        Ok(Err(_)) | Err(_) => return,
                    }
                }
            }
        }
    }
}

//! The connections to one server: [`Node`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Pipeline;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep};

use super::attempts::{Attempts, FIRST_PAUSE};
use super::connection::Connection;
use super::errors::{is_demotion, moved};
use super::target::Target;
use super::{Answers, CommandAnswer, Servers, Topology};
use crate::lock::Mutex;
use crate::store::StoreError;
use crate::telemetry;

/// The least time that a `PING` gets.
const LEAST_PING: Duration = Duration::from_millis(100);

/// The most time that an attempt to connect gets, however late the caller's deadline is.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(10);

/// One server, with a connection that all calls share and a pool of exclusive ones.
///
/// The shared connection is made on the runtime of the call that needs it. It is replaced if it breaks, if its
/// runtime shuts down, if the server has become a replica, and if neither a call nor a `PING` is answered in time.
#[derive(Clone)]
pub(crate) struct Node(Arc<Inner>);

struct Inner {
    target: Target,
    shared: Attempts<Connection>,
    /// The number of the last server, once there was one.
    last: Mutex<Option<u64>>,
    /// True if no call was answered since the last connection was opened. Then the next one comes after a pause.
    is_unproven: AtomicBool,
    moved: Notify,
}

/// A connection that one caller has to itself, for `WATCH`, `MULTI` and `EXEC`.
///
/// Dropping it closes the connection, with all that was watched or queued on it.
pub(crate) struct Exclusive {
    connection: Connection,
    /// The shared connection when the caller got this one.
    shared: Connection,
    node: Node,
    servers: Servers,
    /// True if the connection was used before, so that it may have broken unnoticed. Repeat a read that fails on
    /// such a connection.
    pub(crate) is_reused: bool,
}

impl Node {
    pub(super) fn new(target: Target) -> Self {
        Self(Arc::new(Inner {
            target,
            shared: Attempts::new(Duration::ZERO),
            last: Mutex::new(None),
            is_unproven: AtomicBool::new(false),
            moved: Notify::new(),
        }))
    }

    /// Completes once the shared connection leads to another server than now.
    pub(super) fn moved(&self) -> Notified<'_> {
        self.0.moved.notified()
    }

    pub(super) fn target(&self) -> &Target {
        &self.0.target
    }

    /// Sends a pipeline on this connection. A failure casts doubt on the shared one.
    async fn run_on(
        &self,
        connection: &Connection,
        shared: &Connection,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Answers {
        let begun = Instant::now();
        let answer = connection.send(commands, deadline).await;
        let is_demoted = |answers: &Vec<CommandAnswer>| {
            let mut errors = answers.iter().filter_map(CommandAnswer::server_error);
            errors.any(is_demotion)
        };
        match &answer {
            Ok(answers) if is_demoted(answers) => self.replace(shared, None),
            Ok(_) => self.0.is_unproven.store(false, Ordering::Relaxed),
            Err(error) if error.is_outcome_unknown() => self.replace(shared, Some(begun.elapsed())),
            Err(_) => {}
        }
        answer
    }

    /// The shared connection. If it has to be replaced, concurrent callers share one attempt.
    pub(super) async fn shared(&self, deadline: Instant) -> Result<Connection, StoreError> {
        if let Some(shared) = self.0.shared.value().filter(Connection::is_usable) {
            return Ok(shared);
        }
        let time = deadline.saturating_duration_since(Instant::now());
        let connect = || self.clone().connect(time);
        (self.0.shared)
            .join(deadline, Connection::is_usable, connect)
            .await
    }

    async fn connect(self, time: Duration) -> Result<Connection, StoreError> {
        if self.0.is_unproven.load(Ordering::Relaxed) {
            sleep(FIRST_PAUSE).await;
        }
        let time = time.clamp(self.target().timeout, LONGEST_ATTEMPT);
        let connection = Connection::open(self.target(), Instant::now() + time).await?;
        self.0.is_unproven.store(true, Ordering::Relaxed);
        let last = self.0.last.lock().replace(connection.server);
        if let Some(last) = last {
            telemetry::reconnected();
            if last != connection.server {
                self.0.moved.notify_waiters();
            }
        }
        Ok(connection)
    }

    /// Lets no call use this shared connection until there is another one. After a call that waited so long in vain, it is
    /// kept if it answers a `PING`.
    fn replace(&self, shared: &Connection, waited: Option<Duration>) {
        let current = self.0.shared.value();
        let Some(shared) = current.filter(|it| it.is_same(shared)) else {
            return;
        };
        shared.idle.lock().clear();
        let node = self.clone();
        drop(self.0.shared.start(|_| false, async move {
            if let Some(waited) = waited {
                let deadline = Instant::now() + waited.max(LEAST_PING);
                if shared.send(Pipeline::new().ping(), deadline).await.is_ok() {
                    return Ok(shared);
                }
            }
            node.connect(waited.unwrap_or_default()).await
        }));
    }
}

/// A connection for one caller, to the server that holds the Redis key `name`.
///
/// # Errors
///
/// Fails if there is no connection until the deadline, and for a connection that was handed in.
pub(crate) async fn exclusive(
    servers: &Servers,
    name: &str,
    deadline: Instant,
) -> Result<Exclusive, StoreError> {
    let node = servers.node(name, deadline).await?;
    // Only while the shared connection works, so that its pauses bound the number of attempts.
    let shared = node.shared(deadline).await?;
    let idle = std::iter::from_fn(|| shared.idle.lock().pop()).find(Connection::is_usable);
    let is_reused = idle.is_some();
    let connection = match idle {
        Some(idle) => idle,
        None => {
            let begun = Instant::now();
            let opened = Connection::open(node.target(), deadline).await;
            opened.inspect_err(|_| node.replace(&shared, Some(begun.elapsed())))?
        }
    };
    Ok(Exclusive {
        connection,
        shared,
        node,
        servers: servers.clone(),
        is_reused,
    })
}

impl Exclusive {
    /// Returns the connection to the pool. Every call must have had an answer. It may still watch keys.
    pub(crate) fn release(self) {
        self.shared.idle.lock().push(self.connection);
    }
}

#[async_trait]
impl Topology for Exclusive {
    /// An atomic pipeline has a single answer, that of `EXEC`. A redirection is not followed, but a conflict: take another
    /// connection for the same key then.
    async fn run(&self, _name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        let (connection, shared) = (&self.connection, &self.shared);
        let answer = self.node.run_on(connection, shared, commands, deadline);
        let answer = answer.await;
        match self.servers.note(&self.node, &answer) {
            true => Err(moved()),
            false => answer,
        }
    }
}

#[async_trait]
impl Topology for Node {
    async fn run(&self, _name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        let shared = self.shared(deadline).await?;
        self.run_on(&shared, &shared, commands, deadline).await
    }

    async fn node(&self, _name: &str, _deadline: Instant) -> Result<Self, StoreError> {
        Ok(self.clone())
    }

    fn any_node(&self) -> Option<Self> {
        Some(self.clone())
    }
}

//! The connections to one server: [`Node`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Pipeline;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::connection::Connection;
use super::errors::{self, Failure, demoted};
use super::target::Target;
use super::{Answers, Servers, Topology};
use crate::lock::Mutex;
use crate::store::StoreError;
use crate::telemetry;

/// The most connections that are kept while unused.
const MOST_IDLE: usize = 64;

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
    shared: Attempts<Shared>,
    has_connected: AtomicBool,
}

/// The shared connection.
#[derive(Clone)]
struct Shared {
    connection: Connection,
    /// Exclusive connections for the next callers. They end with the shared one, because the server may be a replica
    /// then.
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// A connection that one caller has to itself, for `WATCH`, `MULTI` and `EXEC`.
///
/// Dropping it closes the connection, with all that was watched or queued on it.
pub(crate) struct Exclusive {
    connection: Connection,
    /// The shared connection when the caller got this one.
    shared: Shared,
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
            has_connected: AtomicBool::new(false),
        }))
    }

    pub(super) fn target(&self) -> &Target {
        &self.0.target
    }

    /// See [`AnswerOrigin::server`](super::AnswerOrigin::server).
    pub(super) async fn server(&self, deadline: Instant) -> Result<u64, StoreError> {
        Ok(self.shared(deadline).await?.connection.server)
    }

    /// Sends a pipeline on the shared connection.
    pub(super) async fn run(&self, commands: &Pipeline, deadline: Instant) -> Answers {
        let shared = self.shared(deadline).await?;
        self.run_on(&shared.connection, &shared, commands, deadline)
            .await
    }

    /// Sends a pipeline on this connection. A failure casts doubt on the shared one.
    async fn run_on(
        &self,
        connection: &Connection,
        shared: &Shared,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Answers {
        let begun = Instant::now();
        let answer = connection.send(commands, deadline).await;
        let is_shared = |it: &Shared| it.connection.number == shared.connection.number;
        match &answer {
            Ok(answers) => match answers.iter().find_map(|it| demoted(it.server_error()?)) {
                Some(why) => self.0.shared.discard(is_shared, why),
                None => self.0.shared.succeed(),
            },
            Err(Failure::Refused(_)) => self.0.shared.succeed(),
            Err(Failure::Lost(_)) if connection.number == shared.connection.number => {
                self.0.shared.discard(is_shared, errors::lost());
            }
            Err(Failure::Late(_) | Failure::Lost(_)) => self.suspect(shared, begun.elapsed()),
        }
        answer.map_err(Failure::into_error)
    }

    pub(super) async fn exclusive(
        self,
        servers: Servers,
        deadline: Instant,
    ) -> Result<Exclusive, StoreError> {
        // Only while the shared connection works, so that its pauses bound the number of attempts.
        let shared = self.shared(deadline).await?;
        let idle = {
            let mut idle = shared.idle.lock();
            idle.retain(Connection::is_usable);
            idle.pop()
        };
        let is_reused = idle.is_some();
        let connection = match idle {
            Some(idle) => idle,
            None => {
                let begun = Instant::now();
                let opened = Connection::open(self.target(), deadline).await;
                opened.inspect_err(|_| self.suspect(&shared, begun.elapsed()))?
            }
        };
        Ok(Exclusive {
            connection,
            shared,
            node: self,
            servers,
            is_reused,
        })
    }

    /// The shared connection. If it has to be replaced, concurrent callers share one attempt.
    async fn shared(&self, deadline: Instant) -> Result<Shared, StoreError> {
        let is_usable = |it: &Shared| it.connection.is_usable();
        if let Some(shared) = self.0.shared.value().filter(is_usable) {
            return Ok(shared);
        }
        let time = deadline.saturating_duration_since(Instant::now());
        let connect = || self.clone().connect(time);
        self.0.shared.join(deadline, is_usable, connect).await
    }

    async fn connect(self, time: Duration) -> Result<Shared, StoreError> {
        let time = time.clamp(self.target().timeout, LONGEST_ATTEMPT);
        let connection = Connection::open(self.target(), Instant::now() + time).await?;
        if self.0.has_connected.swap(true, Ordering::Relaxed) {
            telemetry::reconnected();
        }
        Ok(Shared {
            connection,
            idle: Arc::default(),
        })
    }

    /// Lets no call use the shared connection until a `PING` is answered. If it is not, connects again.
    fn suspect(&self, shared: &Shared, waited: Duration) {
        shared.idle.lock().clear();
        let number = shared.connection.number;
        let is_another = move |it: &Shared| it.connection.number != number;
        if self.0.shared.value().is_none_or(|it| is_another(&it)) {
            return;
        }
        let (node, shared) = (self.clone(), shared.clone());
        drop(self.0.shared.start(is_another, async move {
            let mut ping = Pipeline::new();
            let deadline = Instant::now() + waited.max(LEAST_PING);
            match shared.connection.send(ping.ping(), deadline).await {
                Ok(_) => Ok(shared),
                Err(_) => node.connect(waited).await,
            }
        }));
    }
}

impl Exclusive {
    /// Sends a pipeline. An atomic one has a single answer, that of `EXEC`.
    ///
    /// Redirections are not followed: take another connection for the same key then.
    ///
    /// # Errors
    ///
    /// Fails like [`Servers::run`].
    pub(crate) async fn run(&self, commands: &Pipeline, deadline: Instant) -> Answers {
        let (node, connection) = (&self.node, &self.connection);
        let answer = node.run_on(connection, &self.shared, commands, deadline);
        let answer = answer.await;
        self.servers.note(node, &answer);
        answer
    }

    /// Returns the connection to the pool. It must not watch any key, and every call must have had an answer.
    pub(crate) fn release(self) {
        let mut idle = self.shared.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(self.connection);
        }
    }
}

#[async_trait]
impl Topology for Node {
    async fn run(&self, _name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        self.run(commands, deadline).await
    }

    async fn node(&self, _name: &str, _deadline: Instant) -> Result<Self, StoreError> {
        Ok(self.clone())
    }

    async fn connect(&self) -> Result<(), StoreError> {
        let deadline = Instant::now() + self.target().timeout;
        self.shared(deadline).await.map(drop)
    }

    fn any_node(&self) -> Option<Self> {
        Some(self.clone())
    }
}

//! The connections to one server: [`Node`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::attempts::Attempts;
use super::connection::Connection;
use super::errors::{self, Failure};
use super::target::Target;
use super::{Answered, Answers, Servers, Topology};
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
pub(super) struct Node(Arc<Inner>);

struct Inner {
    target: Target,
    shared: Mutex<Shared>,
    /// Attempts to replace the shared connection.
    attempts: Attempts,
    idle: Mutex<Vec<Connection>>,
    has_connected: AtomicBool,
}

/// The shared connection.
#[derive(Clone)]
enum Shared {
    Absent,
    Sound(Connection),
    /// A call was not answered in time. A `PING` gets this time to clear the suspicion.
    Suspect(Connection, Duration),
}

impl Shared {
    fn number(&self) -> Option<u64> {
        match self {
            Self::Absent => None,
            Self::Sound(connection) | Self::Suspect(connection, _) => Some(connection.number),
        }
    }
}

/// A connection that one caller has to itself, for `WATCH`, `MULTI` and `EXEC`.
///
/// Dropping it closes the connection, with all that was watched or queued on it.
pub(crate) struct Exclusive {
    connection: Connection,
    node: Node,
    servers: Servers,
    /// The number of the shared connection when the caller got this one.
    shared: u64,
    is_reused: bool,
    /// False after a call without an answer, as the connection may be broken.
    is_sound: bool,
}

impl Node {
    pub(super) fn new(target: Target) -> Self {
        Self(Arc::new(Inner {
            target,
            shared: Mutex::new(Shared::Absent),
            attempts: Attempts::new(Duration::ZERO),
            idle: Mutex::default(),
            has_connected: AtomicBool::new(false),
        }))
    }

    pub(super) fn target(&self) -> &Target {
        &self.0.target
    }

    /// Sends a pipeline on the shared connection.
    pub(super) async fn run(&self, commands: &Pipeline, deadline: Instant) -> Answers {
        let connection = self.connection(deadline).await?;
        self.run_on(&connection, connection.number, commands, deadline)
            .await
    }

    /// Sends a pipeline on this connection. A failure casts doubt on the shared connection with this number.
    pub(super) async fn run_on(
        &self,
        connection: &Connection,
        shared: u64,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Answers {
        let begun = Instant::now();
        let answer = connection.send(commands, deadline).await;
        match &answer {
            Ok(answers) if answers.iter().any(is_demoted) => {
                self.discard(shared, errors::demoted());
                self.0.idle.lock().clear();
            }
            Ok(_) | Err(Failure::Refused(_)) => self.0.attempts.succeed(),
            Err(Failure::Late(_)) => self.suspect(shared, begun.elapsed()),
            Err(Failure::Lost(_)) => {
                // The idle connections are as old.
                self.0.idle.lock().clear();
                if connection.number == shared {
                    self.discard(shared, errors::lost());
                } else {
                    self.suspect(shared, begun.elapsed());
                }
            }
        }
        answer.map_err(Failure::into_error)
    }

    pub(super) async fn exclusive(
        self,
        servers: Servers,
        deadline: Instant,
    ) -> Result<Exclusive, StoreError> {
        let idle = {
            let mut idle = self.0.idle.lock();
            idle.retain(Connection::is_usable);
            idle.pop()
        };
        let is_reused = idle.is_some();
        let (connection, shared) = match idle {
            Some(idle) => (idle, self.0.shared.lock().number().unwrap_or(0)),
            None => {
                // Only while the shared connection works, so that its pauses bound the number of attempts.
                let shared = self.connection(deadline).await?.number;
                let begun = Instant::now();
                let opened = timeout_at(deadline, Connection::open(self.target())).await;
                let opened = opened.unwrap_or_else(|late| Err(errors::too_late().caused_by(late)));
                if opened.is_err() {
                    self.suspect(shared, begun.elapsed());
                }
                (opened?, shared)
            }
        };
        Ok(Exclusive {
            connection,
            node: self,
            servers,
            shared,
            is_reused,
            is_sound: true,
        })
    }

    /// The shared connection. If it has to be replaced, concurrent callers share one attempt.
    async fn connection(&self, deadline: Instant) -> Result<Connection, StoreError> {
        // Another call may find the new connection faulty before this one gets it.
        for _ in 0..3 {
            if let Some(connection) = self.usable() {
                return Ok(connection);
            }
            let time = deadline.saturating_duration_since(Instant::now());
            let repair = || self.clone().repair(time);
            self.0.attempts.join(deadline, repair).await?;
        }
        self.usable().ok_or_else(errors::lost)
    }

    fn usable(&self) -> Option<Connection> {
        match &*self.0.shared.lock() {
            Shared::Sound(connection) if connection.is_usable() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Makes the shared connection usable: clears a suspicion by a `PING`, or connects.
    async fn repair(self, time: Duration) -> Result<(), StoreError> {
        if self.usable().is_some() {
            return Ok(());
        }
        let shared = self.0.shared.lock().clone();
        if let Shared::Suspect(connection, time) = shared
            && connection.is_usable()
        {
            let mut ping = Pipeline::new();
            let deadline = Instant::now() + time.max(LEAST_PING);
            let answer = connection.send(ping.ping(), deadline).await;
            let mut shared = self.0.shared.lock();
            if answer.is_ok() && shared.number() == Some(connection.number) {
                *shared = Shared::Sound(connection);
                return Ok(());
            }
        }
        *self.0.shared.lock() = Shared::Absent;
        let time = time.clamp(self.target().timeout, LONGEST_ATTEMPT);
        let opened = timeout(time, Connection::open(self.target())).await;
        let opened = opened.unwrap_or_else(|late| Err(errors::unreachable().caused_by(late)));
        *self.0.shared.lock() = Shared::Sound(opened?);
        if self.0.has_connected.swap(true, Ordering::Relaxed) {
            telemetry::reconnected();
        }
        Ok(())
    }

    /// Drops the shared connection if it still has this number.
    fn discard(&self, number: u64, why: StoreError) {
        let mut shared = self.0.shared.lock();
        if shared.number() == Some(number) {
            *shared = Shared::Absent;
            self.0.attempts.fail(why);
        }
    }

    /// Lets no call use the shared connection with this number until a `PING` is answered.
    fn suspect(&self, number: u64, waited: Duration) {
        let mut shared = self.0.shared.lock();
        let (Shared::Sound(it) | Shared::Suspect(it, _)) = &*shared else {
            return;
        };
        if it.number == number {
            *shared = Shared::Suspect(it.clone(), waited);
            drop(shared);
            drop(self.0.attempts.start(self.clone().repair(waited)));
        }
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
    pub(crate) async fn run(&mut self, commands: &Pipeline, deadline: Instant) -> Answers {
        let (node, connection) = (&self.node, &self.connection);
        let answer = node.run_on(connection, self.shared, commands, deadline);
        let answer = answer.await;
        self.is_sound &= answer.is_ok();
        self.servers.0.topology.note(node, &answer);
        answer
    }

    /// True if the connection was used before, so that it may have broken unnoticed. Repeat a read that fails on
    /// such a connection.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Returns the connection to the pool. It must not watch any key.
    ///
    /// The pool drops it if the shared connection was replaced since: then the server may be a replica.
    pub(crate) fn release(self) {
        let shared = self.node.0.shared.lock();
        let mut idle = self.node.0.idle.lock();
        let is_current = shared.number() == Some(self.shared);
        if self.is_sound && is_current && idle.len() < MOST_IDLE {
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
        self.connection(deadline).await.map(drop)
    }

    fn any_node(&self) -> Option<Self> {
        Some(self.clone())
    }
}

fn is_demoted(answered: &Answered) -> bool {
    matches!(&answered.value, Value::ServerError(error) if errors::is_demoted(error))
}

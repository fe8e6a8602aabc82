//! The connections to one server: [`Node`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::Answered;
use super::attempts::Attempts;
use super::connection::Connection;
use super::errors::{self, Failure};
use super::target::Target;
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
    target: Box<dyn Target>,
    shared: Mutex<Option<Shared>>,
    /// Attempts to replace the shared connection.
    attempts: Attempts,
    idle: Mutex<Vec<Connection>>,
    has_connected: AtomicBool,
}

struct Shared {
    connection: Connection,
    /// Set if a call was not answered in time: the time that a `PING` then gets.
    suspect: Option<Duration>,
}

/// An exclusive connection, as the pool returns it.
pub(super) struct Pooled {
    pub(super) connection: Connection,
    /// The number of the shared connection at that time.
    pub(super) shared: u64,
    pub(super) is_reused: bool,
}

impl Node {
    pub(super) fn new(target: impl Target + 'static) -> Self {
        Self(Arc::new(Inner {
            target: Box::new(target),
            shared: Mutex::new(None),
            attempts: Attempts::new(Duration::ZERO),
            idle: Mutex::default(),
            has_connected: AtomicBool::new(false),
        }))
    }

    pub(super) fn target(&self) -> &dyn Target {
        &*self.0.target
    }

    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        let deadline = Instant::now() + self.target().timeout();
        self.connection(deadline).await.map(drop)
    }

    /// Sends a pipeline on the shared connection.
    pub(super) async fn run(
        &self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Answered>, StoreError> {
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
    ) -> Result<Vec<Answered>, StoreError> {
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

    pub(super) async fn exclusive(&self, deadline: Instant) -> Result<Pooled, StoreError> {
        while let Some(connection) = self.pop_idle() {
            if connection.is_usable() {
                let shared = self.0.shared.lock();
                let shared = shared.as_ref().map_or(0, |it| it.connection.number);
                let is_reused = true;
                return Ok(Pooled {
                    connection,
                    shared,
                    is_reused,
                });
            }
        }
        // Only while the shared connection works, so that its pauses bound the number of attempts.
        let shared = self.connection(deadline).await?.number;
        let begun = Instant::now();
        let opened = timeout_at(deadline, Connection::open(self.target())).await;
        let opened = opened.unwrap_or_else(|elapsed| Err(errors::too_late().caused_by(elapsed)));
        if opened.is_err() {
            self.suspect(shared, begun.elapsed());
        }
        Ok(Pooled {
            connection: opened?,
            shared,
            is_reused: false,
        })
    }

    /// Keeps a connection for later, unless the shared one was replaced since: then the server may be a replica.
    pub(super) fn give_back(&self, pooled: Pooled) {
        let shared = self.0.shared.lock();
        let number = shared.as_ref().map(|it| it.connection.number);
        let mut idle = self.0.idle.lock();
        if number == Some(pooled.shared) && idle.len() < MOST_IDLE {
            idle.push(pooled.connection);
        }
    }

    fn pop_idle(&self) -> Option<Connection> {
        self.0.idle.lock().pop()
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
        let shared = self.0.shared.lock();
        let shared = shared.as_ref().filter(|it| it.suspect.is_none());
        let connection = shared.map(|it| &it.connection);
        connection.filter(|it| it.is_usable()).cloned()
    }

    /// Makes the shared connection usable: clears a suspicion by a `PING`, or connects.
    async fn repair(self, time: Duration) -> Result<(), StoreError> {
        if self.usable().is_some() {
            return Ok(());
        }
        if self.answers_ping().await {
            return Ok(());
        }
        *self.0.shared.lock() = None;
        let time = time.clamp(self.target().timeout(), LONGEST_ATTEMPT);
        let opened = timeout(time, Connection::open(self.target())).await;
        let connection =
            opened.unwrap_or_else(|elapsed| Err(errors::unreachable().caused_by(elapsed)))?;
        if self.0.has_connected.swap(true, Ordering::Relaxed) {
            telemetry::reconnected();
        }
        *self.0.shared.lock() = Some(Shared {
            connection,
            suspect: None,
        });
        Ok(())
    }

    async fn answers_ping(&self) -> bool {
        let suspected = self.0.shared.lock().as_ref().and_then(|it| {
            let time = it.suspect.filter(|_| it.connection.is_usable())?;
            Some((it.connection.clone(), time))
        });
        let Some((connection, time)) = suspected else {
            return false;
        };
        let is_alive = connection.answers_ping(time.max(LEAST_PING)).await;
        let mut shared = self.0.shared.lock();
        let shared = shared.as_mut().filter(|_| is_alive);
        shared.map(|it| it.suspect = None).is_some()
    }

    /// Drops the shared connection if it still has this number.
    fn discard(&self, number: u64, why: StoreError) {
        let mut shared = self.0.shared.lock();
        if shared
            .as_ref()
            .is_some_and(|it| it.connection.number == number)
        {
            *shared = None;
            self.0.attempts.fail(why);
        }
    }

    /// Lets no call use the shared connection with this number until a `PING` is answered.
    fn suspect(&self, number: u64, waited: Duration) {
        {
            let mut shared = self.0.shared.lock();
            let shared = shared.as_mut();
            let Some(shared) = shared.filter(|it| it.connection.number == number) else {
                return;
            };
            shared.suspect = Some(waited);
        }
        drop(self.0.attempts.start(self.clone().repair(waited)));
    }
}

fn is_demoted(answered: &Answered) -> bool {
    matches!(&answered.value, Value::ServerError(error) if errors::is_demoted(error))
}

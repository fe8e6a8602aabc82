//! One connection for all calls, replaced when it is of no more use: [`Link`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{self, Failure, shut_down, too_late};
use super::server;
use super::source::{self, Source};
use crate::backoff;
use crate::store::StoreError;
use crate::telemetry::OfRedis;

/// The pause after the second setback in a row; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The least time that a sign of life may take.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// A connection to one server.
///
/// If it breaks, if the server has become a replica, or if a call was not answered in time and no sign of life
/// is either, another takes its place. One attempt is under way at a time, and whoever needs the connection
/// shares its outcome. After one that failed, calls fail with the same error until a pause is over: there
/// is no flood of connections, nor a wait for each request.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    source: Box<dyn Source>,
    state: Mutex<State>,
    /// How often in a row the connection was lost or could not be made, without an answer in between.
    setbacks: AtomicU32,
    /// The number of the last connection that was made.
    newest: AtomicU64,
    /// Connections of somebody's own that were given back.
    idle: Mutex<Vec<Wire>>,
    telemetry: OfRedis,
}

/// A connection as it was made, which has a number of its own.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    pub(super) number: u64,
}

struct State {
    stage: Stage,
    /// The runtime in which connections live.
    home: Handle,
}

enum Stage {
    Up(Wire),
    /// Somebody asks for a sign of life, or connects.
    Mending(Outcome),
    Down {
        until: Instant,
        why: StoreError,
    },
}

/// Whether there is a connection, once that is known.
type Outcome = watch::Receiver<Option<Result<Wire, StoreError>>>;

impl Link {
    /// Connects when the first call is made.
    pub(super) fn new(home: Handle, source: impl Source + 'static) -> Self {
        Self(Arc::new(Inner {
            source: Box::new(source),
            state: Mutex::new(State {
                stage: Stage::Down {
                    until: Instant::now(),
                    why: failure::unreachable(),
                },
                home,
            }),
            setbacks: AtomicU32::new(0),
            newest: AtomicU64::new(0),
            idle: Mutex::default(),
            telemetry: OfRedis::new(),
        }))
    }

    /// Connects now.
    pub(super) async fn connect(
        home: Handle,
        source: impl Source + 'static,
    ) -> Result<Self, StoreError> {
        let link = Self::new(home, source);
        let mut outcome = link.begin(link.0.state.lock(), None, Duration::ZERO);
        let outcome = outcome.wait_for(Option::is_some).await;
        let outcome = outcome.map_or(None, |it| it.clone());
        outcome.unwrap_or_else(|| Err(shut_down()))?;
        Ok(link)
    }

    /// The connection, or one that takes its place if there is any before the deadline.
    pub(super) async fn wire(&self, deadline: Instant) -> Result<Wire, StoreError> {
        let mut is_moved = false;
        loop {
            let mut outcome = match self.now(deadline) {
                Ok(wire) => return Ok(wire),
                Err(Wait::No(why)) => return Err(why),
                Err(Wait::For(outcome)) => outcome,
            };
            let outcome = timeout_at(deadline, outcome.wait_for(Option::is_some)).await;
            match outcome {
                Ok(Ok(outcome)) => return outcome.clone().unwrap_or_else(|| Err(shut_down())),
                // From now on, connections live here.
                Ok(Err(_)) if !is_moved => self.0.state.lock().home = Handle::current(),
                Ok(Err(_)) => return Err(shut_down()),
                Err(elapsed) => return Err(too_late().caused_by(elapsed)),
            }
            is_moved = true;
        }
    }

    /// What became of something that was sent on this connection and might have taken so long.
    pub(super) fn judge<T>(
        &self,
        number: u64,
        answer: Result<RedisResult<T>, Elapsed>,
        patience: Duration,
    ) -> Result<T, Failure> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let failure = Failure::Answered(error);
                if failure.is_demoted() {
                    self.demoted(number);
                } else if failure.is_lost() {
                    self.lost(number, StoreError::new("the connection to redis was lost"));
                } else {
                    self.proven();
                }
                Err(failure)
            }
            Err(elapsed) => {
                self.doubt(number, patience);
                Err(Failure::Late(elapsed))
            }
        }
    }

    /// The server answers.
    pub(super) fn proven(&self) {
        if self.0.setbacks.load(Ordering::Relaxed) != 0 {
            self.0.setbacks.store(0, Ordering::Relaxed);
        }
    }

    /// The server takes no writes any more: by now, another may stand behind the same name.
    pub(super) fn demoted(&self, number: u64) {
        self.idle().clear();
        self.lost(number, failure::refused(failure::READONLY));
    }

    /// The connection with this number is not used on unless there is a sign of life.
    pub(super) fn doubt(&self, number: u64, patience: Duration) {
        let state = self.0.state.lock();
        if let Stage::Up(wire) = &state.stage
            && wire.number == number
        {
            let wire = wire.clone();
            self.begin(state, Some(wire), patience.max(LEAST_PATIENCE));
        }
    }

    pub(super) fn source(&self) -> &dyn Source {
        &*self.0.source
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<Wire>> {
        self.0.idle.lock()
    }

    pub(super) fn doubt_newest(&self, patience: Duration) {
        self.doubt(self.newest(), patience);
    }

    pub(super) fn newest(&self) -> u64 {
        self.0.newest.load(Ordering::Acquire)
    }

    fn lost(&self, number: u64, why: StoreError) {
        let mut state = self.0.state.lock();
        if matches!(&state.stage, Stage::Up(wire) if wire.number == number) {
            let until = Instant::now() + self.set_back();
            state.stage = Stage::Down { until, why };
        }
    }

    /// Counts a setback, and tells how long to pause for it.
    fn set_back(&self) -> Duration {
        match self.0.setbacks.fetch_add(1, Ordering::Relaxed) {
            // It has answered before.
            0 => Duration::ZERO,
            before => FIRST_PAUSE / 2 + backoff::before(before, FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    fn now(&self, deadline: Instant) -> Result<Wire, Wait> {
        let state = self.0.state.lock();
        let now = Instant::now();
        match &state.stage {
            Stage::Up(wire) => Ok(wire.clone()),
            Stage::Mending(outcome) => Err(Wait::For(outcome.clone())),
            Stage::Down { until, why } if now < *until => Err(Wait::No(why.clone())),
            Stage::Down { .. } => {
                let patience = deadline.saturating_duration_since(now);
                Err(Wait::For(self.begin(state, None, patience)))
            }
        }
    }

    /// Mends in a task, which nobody's impatience ends.
    fn begin(
        &self,
        mut state: MutexGuard<'_, State>,
        doubtful: Option<Wire>,
        patience: Duration,
    ) -> Outcome {
        let (sender, outcome) = watch::channel(None);
        state.stage = Stage::Mending(outcome.clone());
        let home = state.home.clone();
        // If the runtime has shut down, the task is over before it begins.
        drop(state);
        let mending = Mending {
            link: self.clone(),
            sender,
            is_over: false,
        };
        home.spawn(mending.run(doubtful, patience));
        outcome
    }
}

enum Wait {
    For(Outcome),
    No(StoreError),
}

/// Finds out whether there is a connection.
struct Mending {
    link: Link,
    sender: watch::Sender<Option<Result<Wire, StoreError>>>,
    is_over: bool,
}

impl Mending {
    async fn run(mut self, doubtful: Option<Wire>, patience: Duration) {
        let outcome = match doubtful {
            Some(wire) if wire.is_alive(patience).await => Ok(wire),
            _ => self.connect(patience).await,
        };
        self.is_over = true;
        self.link.0.state.lock().stage = match outcome.clone() {
            Ok(wire) => Stage::Up(wire),
            Err(why) => {
                let pause = self.link.set_back().max(FIRST_PAUSE / 2);
                let until = Instant::now() + pause;
                Stage::Down { until, why }
            }
        };
        self.sender.send_replace(Some(outcome));
    }

    async fn connect(&self, patience: Duration) -> Result<Wire, StoreError> {
        let source = self.link.source();
        let connecting = timeout(patience.max(source.patience()), source::connect(source));
        let connection = match connecting.await {
            Ok(connection) => connection?,
            Err(elapsed) => return Err(failure::unreachable().caused_by(elapsed)),
        };
        let wire = Wire::new(connection);
        let before = self.link.0.newest.swap(wire.number, Ordering::AcqRel);
        if before > 0 {
            self.link.0.telemetry.reconnected();
        }
        Ok(wire)
    }
}

impl Drop for Mending {
    fn drop(&mut self) {
        if !self.is_over {
            let (until, why) = (Instant::now(), shut_down());
            self.link.0.state.lock().stage = Stage::Down { until, why };
        }
    }
}

impl Wire {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let number = server::next_number();
        Self { connection, number }
    }

    /// Whether there is any answer: a refusal is one.
    async fn is_alive(&self, patience: Duration) -> bool {
        let mut connection = self.connection.clone();
        let ping = redis::cmd("PING");
        let pong = timeout(patience, ping.query_async::<Value>(&mut connection)).await;
        match pong {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => !Failure::Answered(error).is_lost(),
            Err(_) => false,
        }
    }
}

//! One attempt at a time, shared by all callers that need it: [`Attempts`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::errors::{shut_down, too_late};
use crate::backoff;
use crate::store::StoreError;

/// The pause after a failure is at random between half of this and all of it. The span doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs attempts at something, one at a time. After a failed attempt, callers get the same error at once until
/// a pause is over.
pub(super) struct Attempts(Arc<Mutex<State>>);

struct State {
    running: Option<Outcome>,
    last: Result<(), StoreError>,
    /// Callers get the last outcome until then.
    paused_until: Instant,
    pause_after_success: Duration,
    /// Failures in a row.
    failures: u32,
}

type Outcome = watch::Receiver<Option<Result<(), StoreError>>>;

/// The state of an attempt after [`Attempts::start`].
enum Started {
    Running(Outcome),
    Paused(Result<(), StoreError>),
}

impl Attempts {
    pub(super) fn new(pause_after_success: Duration) -> Self {
        Self(Arc::new(Mutex::new(State {
            running: None,
            last: Ok(()),
            paused_until: Instant::now(),
            pause_after_success,
            failures: 0,
        })))
    }

    /// Waits for the outcome of the running attempt, or starts one.
    ///
    /// The attempt is a task of its own, so that it goes on if this caller is cancelled or its deadline passes.
    pub(super) async fn join<F>(
        &self,
        deadline: Instant,
        attempt: impl Fn() -> F,
    ) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        // The second round is for an attempt that ended with another runtime.
        for _ in 0..2 {
            let mut outcome = match self.start_or_join(attempt()) {
                Started::Running(outcome) => outcome,
                Started::Paused(last) => return last,
            };
            match timeout_at(deadline, outcome.wait_for(Option::is_some)).await {
                Ok(Ok(outcome)) => return outcome.clone().unwrap_or_else(|| Err(shut_down())),
                Ok(Err(_)) => {}
                Err(elapsed) => return Err(too_late().caused_by(elapsed)),
            }
        }
        Err(shut_down())
    }

    /// Starts an attempt unless one is running or a pause is on.
    pub(super) fn start(
        &self,
        attempt: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    ) {
        self.start_or_join(attempt);
    }

    /// Ends the count of failures in a row.
    pub(super) fn succeed(&self) {
        self.0.lock().failures = 0;
    }

    /// Counts a failure outside of an attempt. The first in a row is not followed by a pause.
    pub(super) fn fail(&self, why: StoreError) {
        let mut state = self.0.lock();
        let pause = match state.failures {
            0 => Duration::ZERO,
            failures => pause_after(failures),
        };
        state.failures = state.failures.saturating_add(1);
        state.paused_until = Instant::now() + pause;
        state.last = Err(why);
    }

    fn start_or_join(
        &self,
        attempt: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    ) -> Started {
        let mut state = self.0.lock();
        if let Some(running) = &state.running
            // False if the runtime of the attempt has shut down.
            && running.has_changed().is_ok()
        {
            return Started::Running(running.clone());
        }
        if Instant::now() < state.paused_until {
            return Started::Paused(state.last.clone());
        }
        let (sender, outcome) = watch::channel(None);
        state.running = Some(outcome.clone());
        // A runtime that shuts down drops the task inside `spawn`.
        drop(state);
        let shared = self.0.clone();
        tokio::spawn(async move {
            let outcome = attempt.await;
            shared.lock().finish(&outcome);
            sender.send_replace(Some(outcome));
        });
        Started::Running(outcome)
    }
}

impl State {
    fn finish(&mut self, outcome: &Result<(), StoreError>) {
        let pause = match outcome {
            Ok(()) => self.pause_after_success,
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                pause_after(self.failures)
            }
        };
        self.paused_until = Instant::now() + pause;
        self.last = outcome.clone();
        self.running = None;
    }
}

fn pause_after(failures: u32) -> Duration {
    backoff::half_before(failures, FIRST_PAUSE, LONGEST_PAUSE)
}

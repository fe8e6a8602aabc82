//! One attempt at a time, shared by all callers that need it: [`Attempts`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, ready};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::errors::{shut_down, too_late};
use crate::backoff;
use crate::store::StoreError;

/// The pause after a failure is at random between half of this and all of it. The span doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs attempts at something, one at a time. After a failed attempt, callers get the same error at once until
/// a pause is over.
#[derive(Clone)]
pub(super) struct Attempts(Arc<Mutex<State>>);

struct State {
    /// The attempt that runs, or the last outcome.
    latest: Attempt,
    /// Callers get the last outcome until then.
    paused_until: Instant,
    pause_after_success: Duration,
    /// Failures in a row.
    failures: u32,
}

/// It returns `None` if its runtime has shut down.
type Attempt = Shared<BoxFuture<'static, Option<Outcome>>>;

type Outcome = Result<(), StoreError>;

impl Attempts {
    pub(super) fn new(pause_after_success: Duration) -> Self {
        Self(Arc::new(Mutex::new(State {
            latest: finished(Ok(())),
            paused_until: Instant::now(),
            pause_after_success,
            failures: 0,
        })))
    }

    /// Waits for the outcome of the running attempt, or starts one.
    ///
    /// The attempt is a task of its own, so that it goes on if this caller is cancelled or its deadline passes.
    pub(super) async fn join<F: Future<Output = Outcome> + Send + 'static>(
        &self,
        deadline: Instant,
        attempt: impl Fn() -> F,
    ) -> Outcome {
        // The second round is for an attempt that ended with another runtime.
        for _ in 0..2 {
            match timeout_at(deadline, self.start(attempt())).await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => {}
                Err(elapsed) => return Err(too_late().caused_by(elapsed)),
            }
        }
        Err(shut_down())
    }

    /// Starts an attempt unless one is running or a pause is on. Returns the latest one.
    pub(super) fn start(&self, attempt: impl Future<Output = Outcome> + Send + 'static) -> Attempt {
        let mut state = self.0.lock();
        if !state.is_running() && Instant::now() >= state.paused_until {
            let shared = self.0.clone();
            let task = tokio::spawn(async move {
                let outcome = attempt.await;
                shared.lock().finish(&outcome);
                outcome
            });
            state.latest = task.map(Result::ok).boxed().shared();
        }
        state.latest.clone()
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
        if !state.is_running() {
            state.latest = finished(Err(why));
        }
    }
}

impl State {
    fn is_running(&self) -> bool {
        self.latest.clone().now_or_never().is_none()
    }

    fn finish(&mut self, outcome: &Outcome) {
        let pause = match outcome {
            Ok(()) => self.pause_after_success,
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                pause_after(self.failures)
            }
        };
        self.paused_until = Instant::now() + pause;
    }
}

fn finished(outcome: Outcome) -> Attempt {
    ready(Some(outcome)).boxed().shared()
}

fn pause_after(failures: u32) -> Duration {
    backoff::half_before(failures, FIRST_PAUSE, LONGEST_PAUSE)
}

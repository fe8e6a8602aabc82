//! One attempt at a time, shared by all callers that need it: [`Attempts`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, ready};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, timeout_at};

use super::errors::too_late;
use crate::backoff;
use crate::lock::Mutex;
use crate::store::StoreError;

/// The pause after a failure is at random between half of this and all of it. The span doubles with each failure.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs attempts to get a value, one at a time. After a failed attempt, callers get the same error at once until
/// a pause is over.
#[derive(Clone)]
pub(super) struct Attempts<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    /// The attempt that runs, or the last outcome.
    latest: Attempt<T>,
    /// The runtime on which it was started.
    runtime: Option<runtime::Id>,
    /// Callers get the last outcome until then.
    paused_until: Instant,
    pause_after_success: Duration,
    /// Failures in a row.
    failures: u32,
}

/// It returns `None` if its runtime has shut down, or if it was abandoned.
type Attempt<T> = Shared<BoxFuture<'static, Option<Outcome<T>>>>;

type Outcome<T> = Result<T, StoreError>;

impl<T: Clone + Send + Sync + 'static> Attempts<T> {
    pub(super) fn new(pause_after_success: Duration) -> Self {
        Self(Arc::new(Mutex::new(State {
            latest: ready(None).boxed().shared(),
            runtime: None,
            paused_until: Instant::now(),
            pause_after_success,
            failures: 0,
        })))
    }

    /// The value of the last attempt, unless it failed or another one runs.
    pub(super) fn value(&self) -> Option<T> {
        self.0.lock().finished()??.ok()
    }

    /// Waits for the running attempt, or starts one unless the last value is usable.
    ///
    /// The attempt is a task of its own, so that it goes on if this caller is cancelled or its deadline passes.
    pub(super) async fn join<F: Future<Output = Outcome<T>> + Send + 'static>(
        &self,
        deadline: Instant,
        is_usable: impl Fn(&T) -> bool,
        attempt: impl Fn() -> F,
    ) -> Outcome<T> {
        // The second round is for an attempt that ended with another runtime.
        for _ in 0..2 {
            match timeout_at(deadline, self.start(&is_usable, attempt())).await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => {}
                Err(elapsed) => {
                    self.abandon();
                    return Err(too_late().caused_by(elapsed));
                }
            }
        }
        Err(StoreError::new(
            "the tokio runtime shut down while it connected to redis",
        ))
    }

    /// Lets the next caller start another attempt if this one runs on another runtime, which may not be polled any more.
    fn abandon(&self) {
        let mut state = self.0.lock();
        if state.finished().is_none() && state.runtime != Some(Handle::current().id()) {
            state.latest = ready(None).boxed().shared();
        }
    }

    /// Starts an attempt unless one is running, a pause is on, or the last value is usable. Returns the latest one.
    pub(super) fn start(
        &self,
        is_usable: impl Fn(&T) -> bool,
        attempt: impl Future<Output = Outcome<T>> + Send + 'static,
    ) -> Attempt<T> {
        let mut state = self.0.lock();
        let is_due = match state.finished() {
            None => false,
            Some(Some(Ok(value))) if is_usable(&value) => false,
            Some(_) => Instant::now() >= state.paused_until,
        };
        if is_due {
            let shared = self.0.clone();
            let task = tokio::spawn(async move {
                let outcome = attempt.await;
                let mut state = shared.lock();
                let pause = if outcome.is_ok() {
                    state.failures = 0;
                    state.pause_after_success
                } else {
                    state.failures = state.failures.saturating_add(1);
                    backoff::before(state.failures, FIRST_PAUSE, LONGEST_PAUSE)
                };
                state.paused_until = Instant::now() + pause;
                // If connecting takes longer than calls wait, each attempt may be abandoned: the first success counts.
                if outcome.is_ok() && !matches!(state.finished(), Some(Some(Ok(_)))) {
                    state.latest = ready(Some(outcome.clone())).boxed().shared();
                }
                outcome
            });
            state.latest = task.map(Result::ok).boxed().shared();
            state.runtime = Some(Handle::current().id());
        }
        state.latest.clone()
    }
}

impl<T: Clone> State<T> {
    /// The last outcome, or `None` if an attempt runs.
    fn finished(&self) -> Option<Option<Outcome<T>>> {
        self.latest.clone().now_or_never()
    }
}

//! The task that serves one line: [`Driver`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::ask::Asked;
use super::held::Call;
use super::queue::Wakes;
use super::{DriverState, Line};
use crate::store::{Release, Reply, Reserve, Reserved, StoreError};

/// Serves a line until nobody waits in it.
///
/// At most one call of each kind is in flight.
pub(super) struct Driver {
    line: Arc<Line>,
    reserving: Option<Reserving>,
    releasing: Option<Reply<()>>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The line is closed, and nothing more will come.
    closed: bool,
    finished: bool,
}

struct Reserving {
    asked: Asked,
    sent: Instant,
    guard: Duration,
    reply: Reply<Reserved>,
}

impl Driver {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self {
            line,
            reserving: None,
            releasing: None,
            alarm: None,
            closed: false,
            finished: false,
        }
    }

    /// Lets those go whose time has come, starts the calls that are due, and goes to sleep, all
    /// under one lock, so that no change is missed. Yields when to wake again.
    fn look(&mut self, cx: &Context<'_>) -> Option<Instant> {
        let line = self.line.clone();
        let mut wakes = Wakes::new();
        let mut state = line.state.lock();
        let now = Instant::now();
        state.queue.advance(now, &mut wakes);
        let asked = state.queue.ask(now);
        self.closed = state.closed;
        let surplus = match self.releasing {
            None => state.queue.take_surplus(),
            Some(_) => Vec::new(),
        };
        let alarm = state.queue.plan();
        state.driver = DriverState::Asleep(cx.waker().clone());
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        // In this order, so that what is given back can be had again.
        if !surplus.is_empty() {
            let shared = &self.line.shared;
            let release = Release::new(&self.line.key, &shared.policy, &surplus);
            self.releasing = Some(shared.store.release(&release));
        }
        if let Some(asked) = asked {
            self.reserve(asked);
        }
        alarm
    }

    fn reserve(&mut self, asked: Asked) {
        let shared = &self.line.shared;
        let guard = shared.guard.current();
        let sent = Instant::now();
        let reply = shared.store.reserve(&Reserve {
            key: &self.line.key,
            policy: &shared.policy,
            guard,
            least_guard: shared.guard.least(),
            round_trip: shared.guard.round_trip(),
            not_before: asked.not_before,
            asks: &asked.asks,
        });
        self.reserving = Some(Reserving {
            asked,
            sent,
            guard,
            reply,
        });
    }

    /// Whether an answer came in.
    fn poll_calls(&mut self, cx: &mut Context<'_>) -> bool {
        let mut answered = false;
        // Before what is asked for: a call may start with its first poll.
        if let Some(releasing) = &mut self.releasing
            && Pin::new(releasing).poll(cx).is_ready()
        {
            answered = true;
            self.releasing = None;
        }
        if let Some(reserving) = &mut self.reserving
            && let Poll::Ready(answer) = Pin::new(&mut reserving.reply).poll(cx)
        {
            answered = true;
            if let Some(Reserving {
                asked, sent, guard, ..
            }) = self.reserving.take()
            {
                let received = Instant::now();
                let mut wakes = Wakes::new();
                let mut state = self.line.state.lock();
                match answer {
                    Ok(reserved) if reserved.outcomes.len() != asked.len() => {
                        let error = StoreError::new("the store has not answered every request");
                        state.queue.failed(&asked, &error, received, &mut wakes);
                    }
                    Ok(reserved) => {
                        let shared = &self.line.shared;
                        let call = Call {
                            sent,
                            received,
                            guard,
                            buffer: shared.policy.buffer(),
                            offset: shared.clock.observe(sent, received, reserved.now),
                        };
                        state.queue.answered(&asked, reserved, call, &mut wakes);
                    }
                    Err(error) => state.queue.failed(&asked, &error, received, &mut wakes),
                }
                drop(state);
                wakes.into_iter().for_each(Waker::wake);
            }
        }
        answered
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>, at: Option<Instant>) -> Poll<()> {
        let Some(at) = at else {
            self.alarm = None;
            return Poll::Pending;
        };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if alarm.deadline() != at {
            alarm.as_mut().reset(at);
        }
        alarm.as_mut().poll(cx)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let alarm = this.look(cx);
            if this.poll_calls(cx) {
                continue;
            }
            let busy = this.reserving.is_some() || this.releasing.is_some();
            if !busy && (this.closed || this.line.shared.lines.close(&this.line)) {
                this.finished = true;
                return Poll::Ready(());
            }
            if this.poll_alarm(cx, alarm).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Driver {
    /// Should the runtime shut down: the waiters of other runtimes look again, and one of them
    /// spawns another driver.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut wakes = Wakes::new();
        let mut state = self.line.state.lock();
        state.driver = DriverState::Gone;
        state.queue.abandon(&mut wakes);
        if std::thread::panicking() {
            // The store's fault, most likely: whoever looks would make it panic again.
            let error = StoreError::new("the store panicked").outcome_unknown();
            state.queue.fail_all(&error, &mut wakes);
        }
        let empty = state.queue.is_empty();
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        if empty {
            self.line.close_down();
        }
    }
}

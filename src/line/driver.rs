//! The task that serves one line: [`Driver`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::ask::Asked;
use super::held::Call;
use super::{DriverState, Line, Lone};
use crate::epoch::Epoch;
use crate::outage::LONGEST_PAUSE;
use crate::recovery::Learnt;
use crate::store::{Notice, Release, Reply, Reserve, Reserved, StoreError, Word};

/// Serves a line until nobody waits in it.
///
/// At most one call of each kind is in flight.
#[derive(Debug)]
pub(super) struct Driver {
    line: Arc<Line>,
    home: Option<Handle>,
    reserving: Option<Reserving>,
    releasing: Option<Reply<()>>,
    looking: Option<Reply<Notice>>,
    alarm: Option<Pin<Box<Sleep>>>,
    has_panicked: bool,
}

#[derive(Debug)]
struct Reserving {
    asked: Asked,
    /// In which it was asked.
    epoch: Arc<Epoch>,
    sent: Instant,
    guard: Duration,
    reply: Reply<Reserved>,
}

impl Driver {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self {
            line,
            home: Handle::try_current().ok(),
            reserving: None,
            releasing: None,
            looking: None,
            alarm: None,
            has_panicked: false,
        }
    }

    /// Lets the waiters know that polling it has panicked.
    pub(super) fn fail(mut self: Box<Self>) {
        self.has_panicked = true;
    }

    /// Becomes a task, of the runtime that it was made in: its timers are of that one. Where there was none,
    /// or where it has shut down, this closes the line down, as far as that goes.
    pub(super) fn spawn(self: Box<Self>) {
        if let Some(home) = self.home.clone() {
            home.spawn(*self);
        }
    }

    /// Whether slots are on their way back.
    pub(super) fn is_releasing(&self) -> bool {
        self.releasing.is_some()
    }

    /// Lets those go whose time has come, starts the calls that are due, and goes to sleep, all
    /// under one lock, so that no change is missed. Yields when to wake again.
    fn look(&mut self, cx: &Context<'_>) -> Option<Instant> {
        let may_release = self.releasing.is_none();
        let (key, before) = (&self.line.key, self.line.epoch());
        let is_told = before.store.is_listening();
        let told = before.traces.as_ref();
        let told = told.and_then(|_| before.store.told_until());
        let is_looking = self.looking.is_some();
        // The same throughout: the key may be in another a moment later.
        let part = (!before.circuit.is_closed()).then(|| before.store.part(key));
        let mut epoch = before.clone();
        let (asked, (surplus, life), looks, alarm) = self.line.locked(|state, wakes| {
            // Who has joined meanwhile may have brought another.
            epoch = self.line.epoch();
            let now = Instant::now();
            state.queue.assure(told);
            state.queue.advance(now, wakes);
            state.driver = DriverState::Asleep(cx.waker().clone());
            state.queue.looks_again = false;
            state.queue.moves_at = None;
            // Under the lock, so that whoever finds that the store is back finds this line waiting for it.
            if let Some(error) = part.and_then(|part| epoch.circuit.error(part)) {
                // What would be given back stays reserved until its time has passed.
                state.queue.give_up_if_deaf(now, wakes);
                state.queue.surplus.clear();
                state.queue.looks(now, is_told, false);
                state
                    .queue
                    .out(&error, epoch.stand_in.is_some(), now, wakes);
                // Of several parts, another may hold the key by then, and nobody tells.
                let is_one_of_several = part.is_some_and(|part| part != 0);
                state.queue.moves_at = is_one_of_several.then(|| now + LONGEST_PAUSE);
                return (None, (Vec::new(), 0), false, state.queue.plan());
            }
            let asked = state.queue.ask(now);
            let surplus = if may_release {
                state.queue.take_surplus()
            } else {
                Vec::new()
            };
            let looks = state.queue.looks(now, is_told, !is_looking);
            let surplus = (surplus, state.queue.life);
            (asked, surplus, looks, state.queue.plan())
        });
        if let Some(part) = part {
            epoch.see_to_probe(part, key);
        }
        // In this order, so that what is given back can be had again.
        if !surplus.is_empty() {
            let release = Release {
                life,
                ..Release::new(key, &epoch.policy, &surplus)
            };
            self.releasing = Some(epoch.store.release(&release));
        }
        if let Some(asked) = asked {
            self.reserving = Some(self.reserve(asked, epoch.clone()));
        }
        if looks {
            let reply = epoch.store.heed(key, &epoch.policy, Word::None);
            self.looking = Some(reply);
        }
        alarm
    }

    fn reserve(&self, asked: Asked, epoch: Arc<Epoch>) -> Reserving {
        let key = &self.line.key;
        let guard = epoch.guard.current();
        let traces = epoch.traces.as_ref();
        let evidence = traces.map(|traces| traces.evidence(key, &epoch.policy));
        let sent = Instant::now();
        let reply = epoch.store.reserve(&Reserve {
            key,
            policy: &epoch.policy,
            guard,
            least_guard: epoch.guard.least(),
            round_trip: epoch.guard.round_trip(),
            not_before: asked.not_before.max(epoch.pauses.until(key)),
            asks: &asked.asks,
            evidence: evidence.as_ref(),
        });
        Reserving {
            asked,
            epoch,
            sent,
            guard,
            reply,
        }
    }

    /// Whether an answer came in.
    fn poll_calls(&mut self, cx: &mut Context<'_>) -> bool {
        let mut answered = false;
        let (key, epoch) = (&self.line.key, self.line.epoch());
        // Before what is asked for: a call may start with its first poll.
        if let Some(releasing) = &mut self.releasing
            && let Poll::Ready(answer) = Pin::new(releasing).poll(cx)
        {
            answered = true;
            self.releasing = None;
            epoch.forget_denial(key);
            epoch.heard_of(key, answer.as_ref().err());
        }
        if let Some(reserving) = &mut self.reserving
            && let Poll::Ready(answer) = Pin::new(&mut reserving.reply).poll(cx)
        {
            answered = true;
            if let Some(reserving) = self.reserving.take() {
                self.take_answer(reserving, answer);
            }
        }
        if let Some(looking) = &mut self.looking
            && let Poll::Ready(answer) = Pin::new(looking).poll(cx)
        {
            answered = true;
            self.looking = None;
            epoch.heard_of(key, answer.as_ref().err());
            // If there is no answer, it looks again in a moment.
            if let Ok(notice) = answer {
                epoch.note(key, notice);
                self.line.locked(|state, wakes| {
                    state.queue.seen(notice, Instant::now(), wakes);
                });
            }
        }
        answered
    }

    fn take_answer(&self, reserving: Reserving, answer: Result<Reserved, StoreError>) {
        let Reserving {
            asked,
            epoch,
            sent,
            guard,
            ..
        } = reserving;
        let key = &self.line.key;
        let received = Instant::now();
        let is_out = epoch.heard_of(key, answer.as_ref().err());
        let reserved = match answer {
            Ok(reserved) if reserved.outcomes.len() == asked.len() => reserved,
            Ok(_) => {
                let error = StoreError::new("the store has not answered every request");
                let error = error.no_outage();
                return self.line.locked(|state, wakes| {
                    state.queue.failed(&asked, &error, received, wakes);
                });
            }
            Err(error) => {
                let leave = epoch.stand_in.is_some();
                return self.line.locked(|state, wakes| match is_out {
                    true => (state.queue).lost(&asked, &error, leave, received, wakes),
                    false => state.queue.failed(&asked, &error, received, wakes),
                });
            }
        };
        let (offset, is_set) = epoch.read_clock(sent, received, &reserved);
        let learnt = epoch.learn(key, &reserved, Some(&offset));
        // Of a life that has just begun, slots are as good as its clock.
        if is_set && learnt == Learnt::Same && epoch.traces.is_some() {
            return self.line.locked(|state, _| state.queue.spoiled());
        }
        let call = Call {
            sent,
            received,
            guard,
            buffer: epoch.policy.buffer(),
            offset,
            life: match &epoch.traces {
                Some(_) => reserved.life.map_or(0, |life| life.start),
                None => 0,
            },
        };
        self.line.locked(|state, wakes| {
            state.queue.answered(&asked, reserved, call, wakes);
        });
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
            if !busy && this.line.epoch.load().lines.close(&this.line) {
                return Poll::Ready(());
            }
            if this.poll_alarm(cx, alarm).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Driver {
    /// Should the runtime shut down before the line is closed: the waiters of other runtimes look
    /// again, and one of them spawns another driver.
    fn drop(&mut self) {
        let has_panicked = self.has_panicked || std::thread::panicking();
        let deserted = self.line.locked(|state, wakes| {
            if state.closed {
                return false;
            }
            state.lone = Lone::None;
            state.driver = DriverState::Gone;
            state.queue.abandon(wakes);
            if has_panicked {
                // The store's fault, most likely: whoever looks would make it panic again.
                let error = StoreError::new("the store panicked").outcome_unknown();
                state.queue.fail_all(&error, wakes);
            }
            state.queue.is_empty()
        });
        if deserted {
            self.line.close_down();
        }
    }
}

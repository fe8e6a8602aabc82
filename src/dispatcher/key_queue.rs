//! The queue of one key, and its requests: [`KeyQueue`] and [`Waiting`].

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::Held;
use super::handle::{Granted, Handle, Position};
use crate::algorithm::{Flow, level};
use crate::key::Key;
use crate::lock::Mutex;
use crate::priority::Priority;
use crate::queue::{Queue, Refusal, Step, Woken};
use crate::snapshot::{Remaining, until};

/// A queue of one key.
pub(super) struct KeyQueue {
    pub(super) handle: Arc<Handle>,
    pub(super) key: Key,
    /// The last bits of the number of the process, under which the store knows the queue; see [`LANE_BITS`](crate::algorithm::LANE_BITS).
    pub(super) lane: u64,
    /// The number of the share.
    pub(super) flow: u64,
    /// The weight of the share, as the latest request has it; 0 before the first one.
    pub(super) weight: AtomicU32,
    pub(super) serial: u64,
    queue: Mutex<Queue>,
    /// When the dispatcher is to call for it.
    scheduled: Mutex<Option<Instant>>,
}

impl KeyQueue {
    pub(super) fn new(
        handle: &Arc<Handle>,
        key: &Key,
        lane: u64,
        flow: u64,
        queue: Queue,
    ) -> Arc<Self> {
        Arc::new(Self {
            handle: handle.clone(),
            key: key.clone(),
            lane,
            flow,
            weight: AtomicU32::new(0),
            serial: handle.dispatcher.next_number(),
            queue: Mutex::new(queue),
            scheduled: Mutex::default(),
        })
    }

    /// The share of its requests.
    pub(super) fn flow(&self) -> Flow {
        match self.flow {
            id if id == Flow::default().id => Flow::default(),
            id => Flow {
                id,
                weight: self.weight.load(Ordering::Relaxed),
            },
        }
    }

    /// The place of one of its requests.
    fn place(&self, number: u64, arrival: Instant) -> Position {
        Position {
            number,
            level: level(self.lane),
            flow: self.flow,
            arrival,
        }
    }

    /// 1 if its requests have another priority than the default, else 0.
    pub(super) fn is_ranked(&self) -> usize {
        usize::from(level(self.lane) != Priority::default().level())
    }

    /// Its requests took over departures from another share. Requests without a share are charged nothing.
    pub(super) fn took_over(&self, units: i64) {
        if self.flow != Flow::default().id {
            self.lock().took_over(units);
        }
    }

    /// The level and the share of its requests.
    pub(super) fn rank(&self) -> (u64, u64) {
        (level(self.lane), self.flow)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Counts a departure if requests of a higher level wait in this process, unless its level has a reserve.
    fn note_inversion(&self) {
        if self.handle.levels.load(Ordering::Relaxed) == 0 {
            return;
        }
        let lanes = self.handle.lanes(&self.key);
        let mine = level(self.lane);
        let is_reserved = self.handle.load().policy.reserves()[mine as usize] > 0;
        let waits = |it: &Arc<Self>| level(it.lane) < mine && it.lock().len() > 0;
        if !is_reserved && lanes.iter().any(waits) {
            self.handle.load().telemetry.inverted();
        }
    }

    /// Changes the queue. Then its next call is scheduled, its requests are woken, and it is dropped if it is idle.
    pub(crate) fn update<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Queue, &mut Woken) -> T,
    ) -> T {
        let mut woken = Woken::new();
        let (result, due, is_idle) = {
            let mut queue = self.queue.lock();
            let result = change(&mut queue, &mut woken);
            (result, queue.due(), queue.is_idle())
        };
        self.reschedule(due);
        super::wake(woken);
        if is_idle {
            self.handle.drop_idle(&self.key);
        }
        result
    }

    /// Has the dispatcher look at the queue by then, if it does not do so yet.
    pub(super) fn reschedule(self: &Arc<Self>, due: Option<Instant>) {
        let is_new = due != *self.scheduled.lock();
        if is_new {
            self.handle.dispatcher.touch(self);
        }
    }

    /// A request was polled too late for its turn, which had ended at `until`.
    pub(super) fn missed(&self, guard: Duration, until: Instant, now: Instant) {
        let (handle, late) = (&self.handle, now - until);
        handle.guard.forfeited(guard, late, now);
        let telemetry = &handle.load().telemetry;
        telemetry.missed(&self.key, late, handle.guard.current());
    }

    /// Sets when the dispatcher is to call, and returns when it was to call before.
    pub(crate) fn scheduled(&self, at: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut self.scheduled.lock(), at)
    }
}

/// A request in its queue. It leaves the queue when it is dropped.
pub(crate) struct Waiting {
    queue: Arc<KeyQueue>,
    /// Its place in the queue; 0 once it has left.
    number: u64,
    pub(crate) arrival: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    pub(super) fn new(queue: Arc<KeyQueue>, number: u64, arrival: Instant) -> Self {
        Self {
            queue,
            number,
            arrival,
            timer: None,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.queue.key
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.queue.handle
    }

    /// False once it has left the queue.
    pub(crate) fn is_waiting(&self) -> bool {
        self.number > 0
    }
}

impl Future for Waiting {
    type Output = Result<Granted, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let number = this.number;
        let queue = &this.queue;
        let dispatcher = &queue.handle.dispatcher;
        loop {
            let now = Instant::now();
            let step = queue.update(|queue, woken| queue.poll(number, now, cx.waker(), woken));
            match step {
                Step::Depart(turn, standing) => {
                    this.number = 0;
                    queue.handle.guard.departed(now);
                    queue.note_inversion();
                    let held = (turn.places() > 0).then(|| Box::new(Held::new(queue, &turn)));
                    let remaining = Remaining::new(standing.units, standing.remaining);
                    return Poll::Ready(Ok(Granted {
                        turn,
                        remaining: remaining.among(turn.counters.units),
                        reset: until(standing.reset, turn.from).as_micros() as u64,
                        place: queue.place(number, this.arrival),
                        held,
                    }));
                }
                Step::Fail(refusal) => {
                    this.number = 0;
                    return Poll::Ready(Err(refusal));
                }
                Step::Missed(turn) => queue.missed(turn.guard, turn.until, now),
                Step::Wait(None) => {
                    dispatcher.ensure_task();
                    return Poll::Pending;
                }
                Step::Wait(Some(until)) => {
                    dispatcher.ensure_task();
                    // A timer of a runtime that has shut down would panic: each poll sets one of the current runtime.
                    let timer = this.timer.insert(Box::pin(sleep_until(until)));
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_waiting() {
            let now = Instant::now();
            let queue = &self.queue;
            if queue.update(|queue, woken| queue.leave(self.number, now, woken)) {
                queue.handle.forget_denials(Some(&queue.key));
            }
        }
    }
}

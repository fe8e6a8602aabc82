//! The queues of one key, and their requests: [`KeyQueue`] and [`Waiting`].

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::handle::{Current, Handle, need_runtime};
use super::place::{Held, Place};
use crate::alarm::Alarm;
use crate::algorithm::{Costs, Flow, MOST_SHARES, Mode, level, share_number};
use crate::cost::Remaining;
use crate::key::Key;
use crate::lock::Mutex;
use crate::priority::{COMBINED, Priority, Rank};
use crate::queue::{Arrival, Queue, Refusal, Step, Turn};
use crate::snapshot::until;
use crate::telemetry::{Outcome, Span};

/// The queues of one key. Requests that cost something in the same units share one, so that a request does not wait behind
/// others for a unit in which it costs nothing.
pub(super) type Lanes = SmallVec<[Arc<KeyQueue>; 1]>;

/// A queue of one key: its requests of one lane.
///
/// Locks are taken in this order: the queues of a handle, one queue, the schedule of the dispatcher, `scheduled`. No thread locks
/// two queues at once. Change a queue by [`update`](Self::update), or call [`apply_changes`](Self::apply_changes) afterwards.
pub(super) struct KeyQueue {
    pub(super) handle: Arc<Handle>,
    pub(super) key: Key,
    /// The last bits of the number of the process, under which the store knows the queue; see
    /// [`LANE_BITS`](crate::algorithm::LANE_BITS).
    pub(super) lane: u64,
    /// The number of the share, or [`COMBINED`].
    pub(super) flow: u64,
    /// The weight of the share, as the latest request has it; 0 before the first one.
    pub(super) weight: AtomicU32,
    /// Orders queues that are due at the same time.
    pub(super) serial: u64,
    queue: Mutex<Queue>,
    /// Its time in the dispatcher's schedule; `None` if it is not there. Both change together, while the schedule is locked.
    pub(super) scheduled: Mutex<Option<Instant>>,
}

impl KeyQueue {
    pub(super) fn new(handle: &Arc<Handle>, key: &Key, lane: u64, flow: u64) -> Arc<Self> {
        let without_share = Flow::default();
        let is_shared = flow != without_share.id;
        let weight = if is_shared { 0 } else { without_share.weight };
        Arc::new(Self {
            handle: handle.clone(),
            key: key.clone(),
            lane,
            flow,
            weight: AtomicU32::new(weight),
            serial: handle.dispatcher.next_number(),
            queue: Mutex::default(),
            scheduled: Mutex::default(),
        })
    }

    /// The share of its requests.
    pub(super) fn flow(&self) -> Flow {
        Flow {
            id: self.flow,
            weight: self.weight.load(Ordering::Relaxed),
        }
    }

    /// Its requests took over departures from another share. Requests without a share are charged nothing.
    pub(super) fn took_over(&self, units: i64) {
        if self.flow != Flow::default().id {
            self.lock().took_over(units);
        }
    }

    /// Returns true if its requests have another priority than the default.
    pub(super) fn is_ranked(&self) -> bool {
        level(self.lane) != Priority::default().level()
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
        if self.handle.ranked.load(Ordering::Relaxed) == 0 {
            return;
        }
        let lanes = self.handle.lanes(&self.key);
        let mine = level(self.lane);
        let current = self.handle.load();
        let waits = |it: &Arc<Self>| level(it.lane) < mine && it.lock().len() > 0;
        if !current.is_reserved(mine) && lanes.iter().any(waits) {
            current.telemetry.inverted();
        }
    }

    /// Takes the first turn of this cost from a queue of a lower level, for the first request of this queue; the request that had it
    /// waits again. A level with a reserve keeps its turns. If another turn has come in the meantime, this one returns to the
    /// store.
    pub(super) fn preempt_lower(&self, mode: Mode, cost: Costs, now: Instant) {
        let (lanes, current) = (self.handle.lanes(&self.key), self.handle.load());
        let lower = lanes.iter().filter(|it| {
            let theirs = level(it.lane);
            theirs > level(self.lane) && !current.is_reserved(theirs)
        });
        let turns = lower.filter_map(|it| Some((it.lock().first_turn(cost, now)?.1.from, it)));
        let lower = turns.min_by_key(|(from, _)| *from).map(|(_, it)| it);
        let turn = lower.and_then(|it| it.lock().preempt(cost, now));
        if let (Some(lower), Some(turn)) = (lower, turn) {
            // Each share is charged for what departs of it.
            lower.took_over(-cost.total());
            self.took_over(cost.total());
            self.lock().reassign(mode, turn, now);
            lower.apply_changes();
        }
    }

    /// Changes the queue. Then schedules its next call, wakes its requests, and drops it if it is idle.
    pub(crate) fn update<T>(self: &Arc<Self>, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock();
        let result = change(&mut queue);
        let (woken, is_idle) = (queue.take_woken(), queue.is_idle());
        self.handle.dispatcher.set_due(self, queue);
        woken.into_iter().for_each(Waker::wake);
        if is_idle {
            self.handle.drop_idle(&self.key);
        }
        result
    }

    /// Does what follows a change, after one that was made with [`lock`](Self::lock).
    pub(super) fn apply_changes(self: &Arc<Self>) {
        self.update(|_| {});
    }

    /// Reports that so many places were lost with their lease. The queue must not be locked.
    pub(super) fn report_lost(&self, lost: u32) {
        if lost > 0 {
            self.handle.load().telemetry.lost_places(&self.key, lost);
        }
    }

    /// A request has missed its turn. A longer guard helps if its task is busy.
    pub(super) fn missed(&self, turn: &Turn, now: Instant, is_busy: bool) {
        let (handle, late) = (&self.handle, now - turn.until);
        if is_busy {
            handle.guard.forfeited(turn.guard, late, now);
        }
        let telemetry = &handle.load().telemetry;
        telemetry.missed(&self.key, late, handle.guard.current());
    }
}

/// The lane of requests of this cost, level and share, and the share itself: behind the last one, shares are combined.
pub(super) fn lane_of(lanes: &Lanes, cost: Costs, level: u64, flow: u64) -> (u64, u64) {
    let number = match flow {
        COMBINED => MOST_SHARES,
        flow if flow == Flow::default().id => 0,
        _ => match lanes.iter().find(|it| it.flow == flow) {
            Some(queue) => share_number(queue.lane),
            None => {
                let is_free = |nth: &u64| lanes.iter().all(|it| share_number(it.lane) != *nth);
                (1..MOST_SHARES).find(is_free).unwrap_or(MOST_SHARES)
            }
        },
    };
    let flow = if number == MOST_SHARES {
        COMBINED
    } else {
        flow
    };
    (cost.lane(level, number), flow)
}

/// A request may depart.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) turn: Turn,
    /// How much more of each unit could have departed.
    pub(crate) remaining: Remaining,
    /// All units are available again so long after the start of the turn, in microseconds.
    pub(crate) reset: u64,
    pub(crate) position: Position,
    /// How long it has waited.
    pub(crate) waited: Duration,
    /// Its place among those in progress, if a quota limits how many there are.
    pub(crate) place: Place,
}

/// Where a request waits: its arrival, and what chooses the queue among those of its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    /// Requests of the same lane that arrived earlier are ahead. The number is 0 if the request was in no queue.
    pub(crate) arrival: Arrival,
    pub(super) priority: Priority,
    /// The number of its share.
    pub(super) flow: u64,
}

impl Granted {
    /// When all units are available again.
    #[inline]
    pub(crate) fn resets(&self) -> Instant {
        self.turn.from + Duration::from_micros(self.reset)
    }
}

impl Position {
    /// The position of a new request.
    #[inline]
    pub(crate) fn new(at: Instant, rank: &Rank) -> Self {
        Self {
            arrival: Arrival { at, number: 0 },
            priority: rank.priority,
            flow: rank.flow().id,
        }
    }
}

/// A request in its queue. It leaves the queue when it is dropped.
pub(crate) struct Waiting {
    queue: Arc<KeyQueue>,
    /// Where it waits. The number of its arrival is 0 once it has left the queue.
    pub(crate) position: Position,
    /// The telemetry of this policy counts it as waiting, as long as this lives.
    current: Arc<Current>,
    pub(crate) span: Span,
    timer: Alarm,
}

impl Waiting {
    pub(super) fn new(queue: Arc<KeyQueue>, position: Position, current: Arc<Current>) -> Self {
        (current.telemetry).waiting(&queue.key, position.priority, 1.0);
        Self {
            queue,
            position,
            current,
            span: Span::default(),
            timer: Alarm::default(),
        }
    }

    /// Leaves the queue without a departure. Requests of all lanes may depart sooner.
    fn leave(&mut self, now: Instant) {
        let queue = &self.queue;
        queue.update(|queue| queue.cancel(self.position.arrival, now));
        queue.handle.denials.forget(Some(&queue.key));
        self.position.arrival.number = 0;
    }
}

impl Future for Waiting {
    type Output = Result<Granted, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let position = this.position;
        let queue = &this.queue;
        let dispatcher = &queue.handle.dispatcher;
        loop {
            let (now, step) = queue.update(|queue| {
                // While the queue is locked, as another thread that sees a later time may return the turn.
                let now = Instant::now();
                (now, queue.poll(position.arrival, now, cx.waker()))
            });
            match step {
                Step::Depart(turn, standing) => {
                    this.position.arrival.number = 0;
                    queue.handle.guard.departed(now);
                    queue.note_inversion();
                    let held = (turn.places() > 0).then(|| Box::new(Held::new(queue, &turn)));
                    let place = Place(held);
                    return Poll::Ready(Ok(Granted {
                        turn,
                        remaining: standing.remaining,
                        reset: until(standing.reset, turn.from).as_micros() as u64,
                        position,
                        waited: now.saturating_duration_since(position.arrival.at),
                        place,
                    }));
                }
                Step::Fail(refusal) => {
                    this.position.arrival.number = 0;
                    return Poll::Ready(Err(refusal));
                }
                Step::Missed { turn, is_busy } => queue.missed(&turn, now, is_busy),
                Step::Wait(until) => {
                    if let Err(error) = need_runtime() {
                        this.leave(now);
                        return Poll::Ready(Err(Refusal::Store(error)));
                    }
                    dispatcher.ensure_task();
                    let Some(until) = until else {
                        return Poll::Pending;
                    };
                    ready!(this.timer.poll(until, cx));
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let key = &self.queue.key;
        (self.current.telemetry).waiting(key, self.position.priority, -1.0);
        if self.position.arrival.number == 0 {
            return;
        }
        let now = Instant::now();
        self.leave(now);
        let queue = &self.queue;
        let waited = now.saturating_duration_since(self.position.arrival.at);
        let span = std::mem::take(&mut self.span);
        let current = queue.handle.load();
        (current.telemetry).ended(span, &queue.key, Outcome::Cancelled, waited, None);
    }
}

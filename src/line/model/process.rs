//! A process: the real [`Queue`] and [`Guard`], driven as [`Driver`](super::super::driver) drives them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::bell;
use super::fault::Fault;
use super::messages::{Answer, Call};
use super::moment::At;
use super::setup::START;
use crate::guard::Guard;
use crate::line::ask::Asked;
use crate::line::bound::Bound;
use crate::line::held::Held;
use crate::line::queue::{Queue, WaiterId, Wakes};
use crate::store::{Notice, Slot};

/// A process, its requests, and what is under way between it and the store.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) guard: Arc<Guard>,
    /// Its line; while that is idle, there is none.
    pub(super) queue: Queue,
    pub(super) requests: Vec<Request>,
    /// To the store, in order, each with when it was sent.
    pub(super) calls: VecDeque<(u64, Call)>,
    /// From the store, in order, each with when its call was sent.
    pub(super) answers: VecDeque<(u64, Answer)>,
    /// From the channel, each with when it was published.
    pub(super) notices: VecDeque<(u64, Notice)>,
    pub(super) driver: Driver,
    pub(super) known: Option<Pause>,
    /// What the pauses forbid that it has heard of, and since when.
    pub(super) heard: Vec<(u64, u64)>,
    /// How far ahead the store's clock may be of what it is, as far as is known here.
    pub(super) ahead: Option<u64>,
    pub(super) has_crashed: bool,
    /// Since which tick it takes the store to be out: since a call of its was lost.
    pub(super) out: Option<u64>,
    /// What it has just not given back, as the store is out.
    pub(super) forsaken: Vec<Slot>,
    /// Whether its driver has looked, and is to look again at once although nothing has happened.
    pub(super) is_restless: bool,
    /// How often something here was late, or it was told to pause, or a call that asks for slots was lost.
    pub(super) excuses: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Request {
    ToCome,
    Waiting(Waiting),
    /// It has a permit, and has not departed.
    Permitted(Held, Waiting),
    Over,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) id: WaiterId,
    /// Whether it was woken, and has not looked since.
    pub(super) is_told: bool,
    /// Whether it was late, ever.
    pub(super) was_late: bool,
    /// How many calls have asked for it.
    pub(super) calls: u32,
}

/// What is in flight for the line that is open.
#[derive(Debug, Clone, Default)]
pub(super) struct Driver {
    /// Grows with each line.
    pub(super) line: u64,
    /// Whether it was woken, and has not looked since.
    pub(super) is_called: bool,
    pub(super) reserving: Option<Reserving>,
    pub(super) releasing: bool,
    pub(super) looking: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Reserving {
    pub(super) asked: Asked,
    pub(super) sent: u64,
    pub(super) guard: Duration,
}

/// What [`Pauses`](crate::pauses::Pauses) would know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    pub(super) told: u64,
    pub(super) until: u64,
    pub(super) over: Instant,
    pub(super) is_resumed: bool,
}

/// What a request found when it looked.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Slot,
    Refused,
}

impl Request {
    /// It, if it is neither to come nor over.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        match self {
            Self::Waiting(waiting) | Self::Permitted(_, waiting) => Some(waiting),
            Self::ToCome | Self::Over => None,
        }
    }
}

impl Process {
    pub(super) fn new(requests: usize, guard: Duration) -> Self {
        let guard = Arc::new(Guard::new(guard));
        Self {
            queue: Queue::new(guard.clone()),
            guard,
            requests: vec![Request::ToCome; requests],
            calls: VecDeque::new(),
            answers: VecDeque::new(),
            notices: VecDeque::new(),
            driver: Driver::default(),
            known: None,
            heard: Vec::new(),
            ahead: None,
            has_crashed: false,
            out: None,
            forsaken: Vec::new(),
            is_restless: false,
            excuses: 0,
        }
    }

    pub(super) fn waiting(&self, request: usize) -> Option<&Waiting> {
        match &self.requests[request] {
            Request::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    /// Whether the driver was woken, by somebody or by its alarm.
    pub(super) fn is_driver_due(&self, at: At) -> bool {
        let is_time = self.queue.planned.is_some_and(|planned| planned <= at.now);
        self.driver.is_called || is_time
    }

    /// The next request is made.
    pub(super) fn join(&mut self, request: usize, at: At) {
        self.open(at);
        let id = self.queue.push(request as u64, 1, Bound::Unlimited);
        self.queue.set_waker(id, bell::of(request));
        self.requests[request] = Request::Waiting(Waiting {
            id,
            is_told: false,
            was_late: false,
            calls: 0,
        });
        self.changed(Wakes::new(), at);
    }

    /// A request is no longer wanted.
    pub(super) fn cancel(&mut self, request: usize, at: At) {
        let Some(Waiting { id, .. }) = self.waiting(request).cloned() else {
            return;
        };
        self.requests[request] = Request::Over;
        let mut wakes = Wakes::new();
        let surplus = self.queue.surplus.len();
        self.queue.leave(id, at.now, &mut wakes);
        match at.fault {
            Some(Fault::KeepsWhatTheCancelledHeld) => self.queue.surplus.truncate(surplus),
            Some(Fault::MovesUpInTheWrongOrder) => self.swap_behind(request),
            _ => {}
        }
        self.changed(wakes, at);
    }

    /// Polls a request that was woken.
    pub(super) fn look(&mut self, request: usize, at: At) -> Found {
        let Request::Waiting(waiting) = &mut self.requests[request] else {
            return Found::Nothing;
        };
        waiting.is_told = false;
        let (id, waiting) = (waiting.id, waiting.clone());
        let now = if at.fault == Some(Fault::DepartsHoweverLate) {
            *START
        } else {
            at.now
        };
        let mut wakes = Wakes::new();
        let mut cx = Context::from_waker(bell::of(request));
        let found = match self.queue.poll(id, &mut cx, now, &mut wakes) {
            Poll::Pending => Found::Nothing,
            Poll::Ready(Ok(held)) => {
                self.requests[request] = Request::Permitted(held, waiting);
                Found::Slot
            }
            Poll::Ready(Err(_)) => {
                self.requests[request] = Request::Over;
                Found::Refused
            }
        };
        self.changed(wakes, at);
        found
    }

    /// A permit is not used; perhaps its request waits again.
    pub(super) fn forfeit(&mut self, request: usize, again: bool, at: At) {
        let state = std::mem::replace(&mut self.requests[request], Request::Over);
        let Request::Permitted(held, mut waiting) = state else {
            return;
        };
        self.open(at);
        let mut wakes = Wakes::new();
        self.queue.give(held, at.now, &mut wakes);
        self.changed(wakes, at);
        if again {
            self.open(at);
            let arrival = waiting.id.arrival();
            waiting.id = self.queue.push_again(arrival, 1, Bound::Unlimited);
            self.queue.set_waker(waiting.id, bell::of(request));
            self.requests[request] = Request::Waiting(waiting);
            self.changed(Wakes::new(), at);
        }
    }

    /// All that it held is gone, and so are those who waited. What it has sent is under way.
    pub(super) fn crash(&mut self) {
        self.has_crashed = true;
        self.requests.fill(Request::Over);
        self.queue = Queue::new(self.guard.clone());
        self.driver = Driver::default();
        self.answers.clear();
        self.notices.clear();
        self.known = None;
        self.heard.clear();
        self.ahead = None;
        self.out = None;
        self.close();
    }

    /// A new line knows what the process does.
    fn open(&mut self, at: At) {
        if self.queue.is_idle() {
            let settling = self.known.filter(|pause| pause.is_resumed);
            let settling = settling.map(|pause| pause.over).filter(|&it| at.now < it);
            self.queue.settling = settling;
        }
    }

    /// As [`Line::change`](super::super::Line) does after each change.
    pub(super) fn changed(&mut self, wakes: Wakes, at: At) {
        self.ring(wakes, at);
        self.driver.is_called |= self.queue.wants_driver();
        self.close();
    }

    /// A line that is idle leaves, and the next one is another.
    pub(super) fn close(&mut self) {
        if self.queue.is_idle() {
            self.queue = Queue::new(self.guard.clone());
            self.driver = Driver {
                line: self.driver.line + 1,
                ..Driver::default()
            };
        }
    }

    pub(super) fn ring(&mut self, wakes: Wakes, at: At) {
        for waker in wakes {
            if at.fault == Some(Fault::WakesNobody) {
                continue;
            }
            if let Request::Waiting(waiting) = &mut self.requests[bell::whose(&waker)] {
                waiting.is_told = true;
            }
        }
    }

    /// The one next in line and the last one change places.
    fn swap_behind(&mut self, request: usize) {
        let mut behind = (request + 1..self.requests.len())
            .filter(|&it| self.waiting(it).is_some())
            .collect::<VecDeque<_>>();
        if let (Some(first), Some(last)) = (behind.pop_front(), behind.pop_back()) {
            self.requests.swap(first, last);
            for place in [first, last] {
                if let Some(Waiting { id, .. }) = self.waiting(place).cloned() {
                    self.queue.set_waker(id, bell::of(place));
                }
            }
        }
    }
}

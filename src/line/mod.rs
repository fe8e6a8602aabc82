//! The line: who waits for one key within this process.
//!
//! A [`Line`] exists while somebody waits for its key. Its [`Queue`] holds the waiters and their
//! slots; its [`Driver`](driver::Driver) asks the store for slots and gives surplus ones back, and
//! lets waiters go when their slots have come. While a call is in flight new waiters gather, and the
//! next call asks for all of them. Who waits alone drives the line itself; as soon as anybody else is
//! concerned, the driver becomes a task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use self::driver::Driver;
use self::queue::{Queue, Wakes};
use crate::epoch::Epoch;
use crate::key::Key;
use crate::store::Release;
use crate::telemetry::Forfeits;

mod ask;
mod bound;
mod departing;
mod driver;
mod due;
mod hear;
mod held;
mod lines;
#[cfg(test)]
mod model;
mod out;
mod queue;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use self::bound::Bound;
pub(crate) use self::departing::Departing;
pub(crate) use self::hear::SETTLING;
pub(crate) use self::held::{Call, Held, hold};
pub(crate) use self::lines::{Joined, Lines, Newcomer};
pub(crate) use self::queue::{Refusal, WaiterId};

#[derive(Debug)]
pub(crate) struct Line {
    key: Key,
    /// Of whoever joined last: those with the same lines differ in bounds alone.
    epoch: ArcSwap<Epoch>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    driver: DriverState,
    lone: Lone,
    /// The line has left the map; whoever finds it nevertheless looks for its successor.
    closed: bool,
}

#[derive(Debug)]
enum DriverState {
    /// There is none, or its runtime has shut down.
    Gone,
    /// It is being spawned or at work and will look before it sleeps.
    Awake,
    /// It sleeps.
    Asleep(Waker),
}

/// The driver, while it is no task but polled by the only waiter.
#[derive(Debug)]
enum Lone {
    /// It is a task, or there is none.
    None,
    Here(Box<Driver>),
    /// The waiter polls it; afterwards it is to become a task if somebody else is concerned by then.
    Out {
        concerns_others: bool,
    },
}

impl Lone {
    /// Takes the driver out, if it is here.
    fn take(&mut self) -> Option<Box<Driver>> {
        match std::mem::replace(self, Self::None) {
            Self::Here(driver) => Some(driver),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Who changes a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A waiter, that looks whether it may go: if it is the only one, it drives.
    Waiter,
    /// Somebody who is about to look.
    Newcomer,
    /// Somebody who will not look again.
    Other,
}

impl Who {
    /// # Panics
    ///
    /// Panics if it is to wait where there is no runtime, or one without a timer.
    fn check_runtime(self) {
        if self == Self::Newcomer {
            drop(tokio::time::sleep(Duration::ZERO));
        }
    }
}

impl Line {
    fn new(key: Key, epoch: Arc<Epoch>) -> Self {
        let mut queue = Queue::new(epoch.guard.clone());
        queue.settling = epoch.pauses.settling(&key);
        if let Some(traces) = &epoch.traces {
            queue.set_strict(Some(traces.start(&key, &epoch.policy)));
        }
        Self {
            key,
            epoch: ArcSwap::new(epoch),
            state: Mutex::new(State {
                queue,
                driver: DriverState::Gone,
                lone: Lone::None,
                closed: false,
            }),
        }
    }

    pub(crate) fn epoch(&self) -> Arc<Epoch> {
        self.epoch.load_full()
    }

    /// From now on, it goes by this epoch, if that is newer.
    fn adopt(&self, epoch: &Arc<Epoch>, queue: &mut Queue) {
        let before = self.epoch();
        if epoch.turn() <= before.turn() {
            return;
        }
        if epoch.traces.is_some() != before.traces.is_some() {
            let traces = epoch.traces.as_ref();
            queue.set_strict(traces.map(|it| it.start(&self.key, &epoch.policy)));
        }
        self.epoch.store(epoch.clone());
    }

    /// Whether the waiter may go, and when that was seen.
    pub(crate) fn poll(
        self: &Arc<Self>,
        id: WaiterId,
        cx: &mut Context<'_>,
    ) -> Poll<(Result<Held, Refusal>, Instant)> {
        let mut state = self.state.lock();
        if let Some(driver) = state.lend_driver(id) {
            drop(state);
            self.drive(driver, cx);
            state = self.state.lock();
        }
        self.change(state, Who::Waiter, |queue, wakes| {
            let now = Instant::now();
            queue.poll(id, cx, now, wakes).map(|answer| (answer, now))
        })
    }

    pub(crate) fn leave(self: &Arc<Self>, id: WaiterId) {
        let state = self.state.lock();
        self.change(state, Who::Other, |queue, wakes| {
            queue.leave(id, Instant::now(), wakes);
        });
    }

    /// Changes the queue unless the line is closed.
    fn change_open<T>(
        self: &Arc<Self>,
        who: Who,
        change: impl FnOnce(&mut Queue, &mut Wakes) -> T,
    ) -> Option<T> {
        let state = self.state.lock();
        if let DriverState::Gone = state.driver {
            who.check_runtime();
        }
        (!state.closed).then(|| self.change(state, who, change))
    }

    /// Changes the queue, then wakes whom it concerns; the driver if there is work for it.
    fn change<T>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        who: Who,
        change: impl FnOnce(&mut Queue, &mut Wakes) -> T,
    ) -> T {
        let mut wakes = Wakes::new();
        let result = change(&mut state.queue, &mut wakes);
        let forfeits = state.queue.forfeits.take();
        let idle = state.queue.is_idle();
        let driver = state.call_driver(self, who, &mut wakes);
        drop(state);
        if idle {
            // Now, and not when the driver gets to it: its runtime need not be running.
            self.epoch.load().lines.close(self);
        }
        wakes.into_iter().for_each(Waker::wake);
        self.forfeited(forfeits);
        // One that has nothing to do any more ends here.
        if let Some(driver) = driver
            && (!idle || driver.is_releasing())
        {
            driver.spawn();
        }
        result
    }

    /// Polls the driver, which is the only waiter's.
    fn drive(self: &Arc<Self>, mut driver: Box<Driver>, cx: &mut Context<'_>) {
        // As in a task of its own: what goes wrong there is no panic of the waiter's.
        let poll = AssertUnwindSafe(|| Pin::new(&mut *driver).poll(cx).is_ready());
        let Ok(is_done) = catch_unwind(poll) else {
            driver.fail();
            return;
        };
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.lone, Lone::None) {
            _ if is_done => {}
            Lone::Out {
                concerns_others: true,
            } => {
                drop(state);
                driver.spawn();
            }
            _ => state.lone = Lone::Here(driver),
        }
    }

    /// For the driver: changes the state, then wakes whom it concerns.
    fn locked<T>(&self, change: impl FnOnce(&mut State, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        let result = change(&mut state, &mut wakes);
        let forfeits = state.queue.forfeits.take();
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        self.forfeited(forfeits);
        result
    }

    fn forfeited(&self, forfeits: Forfeits) {
        if !forfeits.is_empty() {
            let epoch = self.epoch();
            (epoch.telemetry).forfeited(&self.key, forfeits, &epoch.guard);
        }
    }

    /// Outside of a runtime there is no driver. Waiters spawn one when they look from within the
    /// next time; slots that nobody wants can be given back only to a store that answers at once.
    fn close_down(self: &Arc<Self>) {
        self.state.lock().driver = DriverState::Gone;
        loop {
            let surplus = self.state.lock().queue.take_surplus();
            if surplus.is_empty() {
                break;
            }
            let epoch = self.epoch();
            if epoch.store.is_local() {
                let release = Release::new(&self.key, &epoch.policy, &surplus);
                drop(epoch.store.release(&release));
            }
        }
        self.epoch.load().lines.close(self);
    }
}

impl State {
    /// The driver, if it is no task but that of this waiter, who looks for itself right afterwards.
    fn lend_driver(&mut self, id: WaiterId) -> Option<Box<Driver>> {
        let driver = self.lone.take()?;
        self.lone = Lone::Out {
            concerns_others: false,
        };
        self.queue.forget_waker(id);
        Some(driver)
    }

    /// Sees to it that the driver does what there is for it; returns it if it has to become a task, or
    /// if there is nothing left to do for the one that is none.
    fn call_driver(
        &mut self,
        line: &Arc<Line>,
        who: Who,
        wakes: &mut Wakes,
    ) -> Option<Box<Driver>> {
        let idle = self.queue.is_idle();
        match &mut self.lone {
            Lone::Here(_) if who == Who::Waiter && !self.queue.is_empty() => {
                // Its slot may have passed while it looked. It drives once more, then.
                if self.queue.wants_to_ask()
                    && let DriverState::Asleep(waker) =
                        std::mem::replace(&mut self.driver, DriverState::Awake)
                {
                    wakes.push(waker);
                }
                return None;
            }
            Lone::Here(_) => return self.lone.take(),
            Lone::Out { concerns_others } => {
                *concerns_others = true;
                return None;
            }
            Lone::None => {}
        }
        match &self.driver {
            DriverState::Gone if idle => return None,
            DriverState::Gone => {}
            _ if !self.queue.wants_driver() => return None,
            _ => {}
        }
        match std::mem::replace(&mut self.driver, DriverState::Awake) {
            DriverState::Gone => {
                let driver = Box::new(Driver::new(line.clone()));
                if who != Who::Newcomer || self.queue.len() > 1 {
                    return Some(driver);
                }
                self.lone = Lone::Here(driver);
            }
            DriverState::Awake => {}
            DriverState::Asleep(waker) => wakes.push(waker),
        }
        None
    }
}

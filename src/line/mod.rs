//! The line: who waits for one key within this process.
//!
//! A [`Line`] exists while somebody waits for its key. Its [`Queue`] holds the waiters and their
//! slots; its [`Driver`](driver::Driver), one task, asks the store for slots and gives surplus
//! ones back, and lets waiters go when their slots have come. While a call is in flight new waiters
//! gather, and the next call asks for all of them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::driver::Driver;
use self::queue::{Queue, Wakes};
use crate::epoch::Epoch;
use crate::key::Key;
use crate::store::Release;

mod ask;
mod bound;
mod driver;
mod due;
mod held;
mod lines;
mod queue;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use self::bound::Bound;
pub(crate) use self::held::{Call, Held, hold};
pub(crate) use self::lines::{Lines, Newcomer};
pub(crate) use self::queue::{Refusal, WaiterId};

#[derive(Debug)]
pub(crate) struct Line {
    key: Key,
    epoch: Arc<Epoch>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    driver: DriverState,
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

impl Line {
    fn new(key: Key, epoch: Arc<Epoch>) -> Self {
        let queue = Queue::new(epoch.guard.clone());
        Self {
            key,
            epoch,
            state: Mutex::new(State {
                queue,
                driver: DriverState::Gone,
                closed: false,
            }),
        }
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    pub(crate) fn poll(
        self: &Arc<Self>,
        id: WaiterId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Held, Refusal>> {
        self.change(|queue, now, wakes| queue.poll(id, cx, now, wakes))
    }

    pub(crate) fn leave(self: &Arc<Self>, id: WaiterId) {
        self.change(|queue, now, wakes| queue.leave(id, now, wakes));
    }

    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Queue, Instant, &mut Wakes) -> T) -> T {
        self.change_locked(self.state.lock(), change)
    }

    /// As `change`, unless the line is closed.
    fn change_open<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Queue, Instant, &mut Wakes) -> T,
    ) -> Option<T> {
        let state = self.state.lock();
        (!state.closed).then(|| self.change_locked(state, change))
    }

    /// Changes the queue, then wakes whom it concerns; the driver if there is work for it.
    fn change_locked<T>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        change: impl FnOnce(&mut Queue, Instant, &mut Wakes) -> T,
    ) -> T {
        let mut wakes = Wakes::new();
        let result = change(&mut state.queue, Instant::now(), &mut wakes);
        let idle = state.queue.is_idle();
        let spawn = state.call_driver(&mut wakes);
        drop(state);
        if idle {
            // Now, and not when the driver gets to it: its runtime need not be running.
            self.epoch.lines.close(self);
        }
        wakes.into_iter().for_each(Waker::wake);
        if spawn {
            self.spawn_driver();
        }
        result
    }

    /// For the driver: changes the state, then wakes whom it concerns.
    fn locked<T>(&self, change: impl FnOnce(&mut State, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::new();
        let result = change(&mut self.state.lock(), &mut wakes);
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    fn spawn_driver(self: &Arc<Self>) {
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(Driver::new(self.clone()))),
            Err(_) => self.close_down(),
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
            if self.epoch.store.is_local() {
                let release = Release::new(&self.key, &self.epoch.policy, &surplus);
                drop(self.epoch.store.release(&release));
            }
        }
        self.epoch.lines.close(self);
    }
}

impl State {
    /// Wakes the driver if there may be work for it; says whether it has to be spawned.
    fn call_driver(&mut self, wakes: &mut Wakes) -> bool {
        match &self.driver {
            DriverState::Gone if self.queue.is_idle() => return false,
            DriverState::Gone => {}
            _ if !self.queue.wants_driver() => return false,
            _ => {}
        }
        match std::mem::replace(&mut self.driver, DriverState::Awake) {
            DriverState::Gone => return true,
            DriverState::Awake => {}
            DriverState::Asleep(waker) => wakes.push(waker),
        }
        false
    }
}

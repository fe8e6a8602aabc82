//! Brings what many keys ask for to the server, in few calls: [`Couriers`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::calls::{self, Asking};
use super::connection::{Connection, explain, too_late};
use super::reply::{self, Answer};
use super::script::Scripts;
use crate::store::StoreError;

/// The most calls for many keys that are under way at once: while the server works on one, the next is
/// on its way.
const MOST_COURIERS: usize = 2;

/// The most keys, and about the most requests, that share a call: none holds the server up for long.
const MOST_KEYS: usize = 256;
const MOST_REQUESTS: usize = 2_000;

/// Who asks while no call is under way has one of its own. Others gather, and tasks of their own take
/// along whatever has gathered.
pub(super) struct Couriers {
    connection: Connection,
    /// The runtime in which the store was made, as was its connection most likely: if it does not run, there
    /// are no answers. Any other may stop running while it takes along what others wait for.
    home: Option<Handle>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What waits to be taken along, by the scripts that answer it.
    waiting: VecDeque<Gathered>,
    /// Whether a call for one key alone is under way.
    alone: bool,
    couriers: usize,
}

struct Gathered {
    scripts: &'static Scripts,
    parcels: VecDeque<Parcel>,
}

struct Parcel {
    asking: Box<Asking>,
    deadline: Instant,
    back: oneshot::Sender<Delivery>,
}

enum Delivery {
    Answer(Answer),
    /// It was not sent: who was to do so had to stop.
    Back(Box<Asking>),
}

impl Couriers {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            home: Handle::try_current().ok(),
            state: Mutex::default(),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn home(&self) -> Option<&Handle> {
        self.home.as_ref()
    }

    pub(super) async fn ask(self: Arc<Self>, asking: Box<Asking>, deadline: Instant) -> Answer {
        if let Some(_alone) = self.alone() {
            return self.ask_alone(asking, deadline).await;
        }
        let receiver = self.gather(asking, deadline);
        // Who takes it along may have longer.
        match timeout_at(deadline, receiver).await {
            Ok(Ok(Delivery::Answer(answer))) => answer,
            Ok(Ok(Delivery::Back(asking))) => self.ask_alone(asking, deadline).await,
            Ok(Err(_)) => {
                let lost = StoreError::new("the runtime that called redis has shut down");
                Err(lost.outcome_unknown())
            }
            Err(elapsed) => Err(too_late().caused_by(elapsed).outcome_unknown()),
        }
    }

    async fn ask_alone(&self, asking: Box<Asking>, deadline: Instant) -> Answer {
        let scripts = asking.scripts();
        let all = [asking];
        // In a box, as most of those who gather have no use for the room.
        let mut answers = Box::pin(self.send(&all, scripts, deadline)).await?;
        answers.remove(0)
    }

    /// Whether no call is under way: then the next is for one key alone.
    fn alone(&self) -> Option<Alone<'_>> {
        let mut state = self.state.lock();
        let is_alone = !state.alone && state.couriers == 0;
        state.alone |= is_alone;
        is_alone.then(|| Alone(self))
    }

    fn gather(
        self: &Arc<Self>,
        asking: Box<Asking>,
        deadline: Instant,
    ) -> oneshot::Receiver<Delivery> {
        let (back, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        let scripts = asking.scripts();
        let parcel = Parcel {
            asking,
            deadline,
            back,
        };
        let mut waiting = state.waiting.iter_mut();
        match waiting.find(|it| std::ptr::eq(it.scripts, scripts)) {
            Some(gathered) => gathered.parcels.push_back(parcel),
            None => state.waiting.push_back(Gathered {
                scripts,
                parcels: VecDeque::from([parcel]),
            }),
        }
        if state.couriers < MOST_COURIERS {
            state.couriers += 1;
            drop(state);
            let courier = Courier {
                couriers: self.clone(),
                is_done: false,
            };
            match &self.home {
                Some(home) => home.spawn(courier.run()),
                None => tokio::spawn(courier.run()),
            };
        }
        receiver
    }

    async fn send(
        &self,
        all: &[Box<Asking>],
        scripts: &'static Scripts,
        deadline: Instant,
    ) -> Result<Vec<Answer>, StoreError> {
        let call = calls::reserve(all, scripts);
        let value = self.call(Some(scripts), call, deadline).await?;
        let asked = all.iter().map(|it| (it.asks(), it.numbers()));
        reply::read(value, asked, scripts.is_strict)
    }

    /// Sends a call; of one of these scripts, which are loaded if the server does not know it.
    pub(super) async fn call(
        &self,
        scripts: Option<&'static Scripts>,
        call: redis::Cmd,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let mut connection = self.connection.clone();
        match timeout_at(deadline, connection.run(scripts, &call)).await {
            Ok(answer) => answer.map_err(explain),
            Err(elapsed) => Err(too_late().caused_by(elapsed).outcome_unknown()),
        }
    }

    /// What has gathered, as far as one call may go; `None` if nothing has, and then one courier less is
    /// at work.
    fn take(&self) -> Option<Vec<Parcel>> {
        let mut state = self.state.lock();
        let Some(mut gathered) = state.waiting.pop_front() else {
            state.couriers -= 1;
            return None;
        };
        let (mut taken, mut requests) = (Vec::new(), 0);
        while taken.len() < MOST_KEYS
            && requests < MOST_REQUESTS
            && let Some(parcel) = gathered.parcels.pop_front()
        {
            requests += parcel.asking.requests();
            taken.push(parcel);
        }
        if !gathered.parcels.is_empty() {
            // Behind the others, as they wait for the same couriers.
            state.waiting.push_back(gathered);
        }
        Some(taken)
    }

    async fn deliver(&self, parcels: Vec<Parcel>) {
        let now = Instant::now();
        let (mut all, mut backs) = (Vec::new(), Vec::new());
        let mut latest = now;
        for parcel in parcels {
            if parcel.back.is_closed() {
                continue;
            }
            if parcel.deadline <= now {
                let too_late = Delivery::Answer(Err(too_late()));
                // It may have stopped to wait meanwhile.
                let _ = parcel.back.send(too_late);
                continue;
            }
            latest = latest.max(parcel.deadline);
            all.push(parcel.asking);
            backs.push(parcel.back);
        }
        let Some(scripts) = all.first().map(|it| it.scripts()) else {
            return;
        };
        match self.send(&all, scripts, latest).await {
            Ok(answers) => {
                for (back, answer) in backs.into_iter().zip(answers) {
                    let _ = back.send(Delivery::Answer(answer));
                }
            }
            Err(error) => {
                for back in backs {
                    let _ = back.send(Delivery::Answer(Err(error.clone())));
                }
            }
        }
    }
}

/// Lets others have a call of their own once it is dropped.
struct Alone<'a>(&'a Couriers);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state.lock().alone = false;
    }
}

/// A task that takes along what has gathered until nothing is left.
struct Courier {
    couriers: Arc<Couriers>,
    is_done: bool,
}

impl Courier {
    async fn run(mut self) {
        // Those who are about to ask do so first.
        tokio::task::yield_now().await;
        while let Some(parcels) = self.couriers.take() {
            self.couriers.deliver(parcels).await;
        }
        self.is_done = true;
    }
}

impl Drop for Courier {
    /// Should the runtime shut down: those that were not sent go back to who asked.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let deserted = {
            let mut state = self.couriers.state.lock();
            state.couriers -= 1;
            if state.couriers == 0 {
                std::mem::take(&mut state.waiting)
            } else {
                VecDeque::new()
            }
        };
        for Parcel { asking, back, .. } in deserted.into_iter().flat_map(|it| it.parcels) {
            let _ = back.send(Delivery::Back(asking));
        }
    }
}

impl fmt::Debug for Couriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Couriers").finish_non_exhaustive()
    }
}

//! Brings what many keys ask for to the server, in few calls: [`Couriers`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use hashbrown::HashMap;
use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::calls::{self, Asking, Errand};
use super::failure::{Failure, shut_down, too_late};
use super::host_clock::HostClock;
use super::parcels::{Delivery, Gathered, Group, Parcel, groups};
use super::reply::{self, Answer};
use super::script::Scripts;
use super::server::{self, Call, Server};
use crate::clock::Reading;
use crate::store::StoreError;
use crate::telemetry::OfRedis;

/// The most calls for many keys that are under way to one server at once: while it works on one, the next is
/// on its way.
const MOST_COURIERS: usize = 2;

/// Who asks while no call is under way has one of its own. Others gather, and tasks of their own take
/// along whatever has gathered.
pub(super) struct Couriers {
    server: Arc<dyn Server>,
    /// The runtime in which the store was made, as was its connection most likely: if it does not run, there
    /// are no answers. Any other may stop running while it takes along what others wait for.
    home: Option<Handle>,
    /// By the server that is asked, so that none waits for what another does not answer.
    lanes: Mutex<HashMap<u64, Lane>>,
    telemetry: OfRedis,
}

#[derive(Default)]
struct Lane {
    /// What waits to be taken along, by the scripts that answer it.
    waiting: VecDeque<Gathered>,
    /// Whether a call for one key alone is under way.
    alone: bool,
    couriers: usize,
}

impl Couriers {
    pub(super) fn new(server: Arc<dyn Server>) -> Self {
        Self {
            server,
            home: Handle::try_current().ok(),
            lanes: Mutex::default(),
            telemetry: OfRedis::new(),
        }
    }

    pub(super) fn server(&self) -> &Arc<dyn Server> {
        &self.server
    }

    pub(super) fn home(&self) -> Option<&Handle> {
        self.home.as_ref()
    }

    /// Which part of the store the keys of this name's tag are in, as far as is known.
    pub(super) fn part(&self, name: &str) -> u64 {
        self.server.part(self.server.place(name))
    }

    pub(super) async fn ask(self: Arc<Self>, asking: Box<Asking>, deadline: Instant) -> Answer {
        let place = self.server.place(asking.name());
        let (lane, part) = (self.server.lane(place), self.server.part(place));
        let answer = self.clone().ask_on(lane, place, asking, deadline).await;
        answer.map_err(|error| error.of_part(self.server.failed_part(place, part)))
    }

    async fn ask_on(
        self: Arc<Self>,
        lane: u64,
        place: u16,
        asking: Box<Asking>,
        deadline: Instant,
    ) -> Answer {
        if let Some(_alone) = self.alone(lane) {
            return self.ask_alone(place, asking, deadline).await;
        }
        let receiver = self.gather(lane, place, asking, deadline);
        // Who takes it along may have longer.
        match timeout_at(deadline, receiver).await {
            Ok(Ok(Delivery::Answer(answer))) => answer,
            Ok(Ok(Delivery::Back(asking))) => self.ask_alone(place, asking, deadline).await,
            Ok(Err(_)) => Err(shut_down().outcome_unknown()),
            Err(elapsed) => Err(Failure::Late(elapsed).explain()),
        }
    }

    async fn ask_alone(&self, place: u16, asking: Box<Asking>, deadline: Instant) -> Answer {
        let scripts = asking.scripts();
        let all = [asking];
        // In a box, as most of those who gather have no use for the room.
        let mut answers = Box::pin(self.send(place, &all, scripts, deadline)).await?;
        answers.remove(0)
    }

    /// Whether no call is under way: then the next is for one key alone.
    fn alone(&self, lane: u64) -> Option<Alone<'_>> {
        let mut lanes = self.lanes.lock();
        let state = lanes.entry(lane).or_default();
        let is_alone = !state.alone && state.couriers == 0;
        state.alone |= is_alone;
        // Not made in vain: it lets others go ahead when it is dropped.
        is_alone.then(|| Alone {
            couriers: self,
            lane,
        })
    }

    fn gather(
        self: &Arc<Self>,
        lane: u64,
        place: u16,
        asking: Box<Asking>,
        deadline: Instant,
    ) -> oneshot::Receiver<Delivery> {
        let (back, receiver) = oneshot::channel();
        let mut lanes = self.lanes.lock();
        let state = lanes.entry(lane).or_default();
        let scripts = asking.scripts();
        let parcel = Parcel {
            place,
            asking,
            deadline,
            back,
        };
        let mut waiting = state.waiting.iter_mut();
        match waiting.find(|it| it.is_of(scripts)) {
            Some(gathered) => gathered.push(parcel),
            None => state.waiting.push_back(Gathered::new(scripts, parcel)),
        }
        if state.couriers < MOST_COURIERS {
            state.couriers += 1;
            drop(lanes);
            let courier = Courier {
                couriers: self.clone(),
                lane,
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
        place: u16,
        all: &[Box<Asking>],
        scripts: &'static Scripts,
        deadline: Instant,
    ) -> Result<Vec<Answer>, StoreError> {
        self.telemetry.called_for(all.len());
        let command = calls::reserve(all, scripts);
        let call = Call::new(Some(scripts), &command);
        let answer = self.server.run(place, call, deadline).await;
        let server::Answer { value, number } = answer.map_err(Failure::explain)?;
        let asked = all.iter().map(|it| (it.asks(), it.numbers()));
        let mut answers = reply::read(value, asked, scripts.kind.is_strict)?;
        for reserved in answers.iter_mut().flatten() {
            reserved.clock = if scripts.kind.is_told_the_time {
                HostClock::READING
            } else {
                Reading {
                    server: self.server.lane(place),
                    connection: number,
                }
            };
        }
        Ok(answers)
    }

    /// What a call that fails means, `explain` tells.
    pub(super) async fn run(
        &self,
        errand: Errand,
        explain: fn(Failure) -> StoreError,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let place = self.server.place(&errand.name);
        let part = self.server.part(place);
        let call = Call::new(errand.scripts, &errand.command);
        let answer = self.server.run(place, call, deadline).await;
        match answer {
            Ok(answer) => Ok(answer.value),
            Err(failure) => Err(explain(failure).of_part(self.server.failed_part(place, part))),
        }
    }

    /// What has gathered, as far as one call may go; `None` if nothing has, and then one courier less is
    /// at work.
    fn take(&self, lane: u64) -> Option<Vec<Parcel>> {
        let mut lanes = self.lanes.lock();
        let state = lanes.get_mut(&lane)?;
        let Some(mut gathered) = state.waiting.pop_front() else {
            state.couriers -= 1;
            leave(&mut lanes, lane);
            return None;
        };
        let taken = gathered.take();
        if !gathered.is_empty() {
            // Behind the others, as they wait for the same couriers.
            state.waiting.push_back(gathered);
        }
        Some(taken)
    }

    async fn deliver(&self, parcels: Vec<Parcel>) {
        let now = Instant::now();
        let mut alive = Vec::with_capacity(parcels.len());
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
            alive.push(parcel);
        }
        join_all(groups(alive).into_iter().map(|it| self.bring(it))).await;
    }

    async fn bring(&self, group: Group) {
        let (place, latest) = (group.place, group.latest);
        let parcels = group.parcels.into_iter();
        let (all, backs): (Vec<_>, Vec<_>) = parcels.map(|it| (it.asking, it.back)).unzip();
        let Some(scripts) = all.first().map(|it| it.scripts()) else {
            return;
        };
        match self.send(place, &all, scripts, latest).await {
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

/// Forgets a lane that nobody is on.
fn leave(lanes: &mut HashMap<u64, Lane>, lane: u64) {
    let is_empty = |it: &Lane| !it.alone && it.couriers == 0 && it.waiting.is_empty();
    if lanes.get(&lane).is_some_and(is_empty) {
        lanes.remove(&lane);
    }
}

/// Lets others have a call of their own once it is dropped.
struct Alone<'a> {
    couriers: &'a Couriers,
    lane: u64,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut lanes = self.couriers.lanes.lock();
        if let Some(state) = lanes.get_mut(&self.lane) {
            state.alone = false;
        }
        leave(&mut lanes, self.lane);
    }
}

/// A task that takes along what has gathered until nothing is left.
struct Courier {
    couriers: Arc<Couriers>,
    lane: u64,
    is_done: bool,
}

impl Courier {
    async fn run(mut self) {
        // Those who are about to ask do so first.
        tokio::task::yield_now().await;
        while let Some(parcels) = self.couriers.take(self.lane) {
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
        let mut deserted = VecDeque::new();
        {
            let mut lanes = self.couriers.lanes.lock();
            if let Some(state) = lanes.get_mut(&self.lane) {
                state.couriers -= 1;
                if state.couriers == 0 {
                    deserted = std::mem::take(&mut state.waiting);
                }
            }
            leave(&mut lanes, self.lane);
        }
        for Parcel { asking, back, .. } in deserted.into_iter().flat_map(Gathered::into_parcels) {
            let _ = back.send(Delivery::Back(asking));
        }
    }
}

impl fmt::Debug for Couriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Couriers").finish_non_exhaustive()
    }
}

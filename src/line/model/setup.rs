//! What a model is of: [`Setup`], how many processes and requests, and what may go wrong.

use std::sync::LazyLock;
use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;

use super::actions::Action;
use super::claims::Claim;
use super::fault::Fault;
use super::seen::Seen;
use super::world::World;
use crate::algorithm::micros;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;

/// The local clock at tick 0, and what the store's shows then.
pub(super) static START: LazyLock<Instant> = LazyLock::new(Instant::now);
pub(super) const EPOCH: u64 = 1_763_000_000_000_000;

/// Beyond any guard that is seen.
pub(super) const LONGEST: Duration = Duration::from_secs(2);

/// How often each may happen, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct May {
    /// A tick passes while somebody who was to act has not.
    pub(super) late: u32,
    /// A request is no longer wanted: it leaves the line, or does not use its permit.
    pub(super) cancelled: u32,
    /// A call is lost on its way, or its answer is.
    pub(super) lost: u32,
    /// A process crashes.
    pub(super) crashed: u32,
    /// A process says that nothing may depart for some ticks.
    pub(super) paused: u32,
    /// A process misses what the channel tells.
    pub(super) missed: u32,
}

impl May {
    /// Each lets a request be asked for once more.
    pub(super) fn troubles(&self) -> u32 {
        self.late + self.lost + self.paused + self.missed
    }
}

#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// How long a tick is. Messages take no time, or one tick; so does the way to the store and back.
    pub(super) tick: Duration,
    pub(super) limit: u32,
    /// In halves of ticks, as the guard: what is not whole lets a slot come between two ticks.
    pub(super) window: u32,
    pub(super) guard: u32,
    /// In ticks.
    pub(super) pause: u32,
    /// How many requests each process has.
    pub(super) requests: Vec<usize>,
    /// How many requests of others have departed just before.
    pub(super) departed: u32,
    pub(super) may: May,
    pub(super) fault: Option<Fault>,
    pub(super) seen: Seen,
}

impl Setup {
    pub(super) fn window(&self) -> Duration {
        self.tick / 2 * self.window
    }

    pub(super) fn policy(&self) -> Policy {
        let parts = PolicyParts {
            quotas: [Quota::new(self.limit, self.window())]
                .into_iter()
                .collect(),
            guard: Some(self.tick / 2 * self.guard),
            ..PolicyParts::default()
        };
        parts.build().unwrap()
    }

    /// Beyond what any slot is ahead, in microseconds on the store's clock: as if each request had as many slots
    /// lost ahead of it as can be, each with a guard that was doubled each time.
    pub(super) fn longest_wait(&self) -> u64 {
        let requests = self.requests.iter().sum::<usize>() as u32;
        let slots = requests * (2 + self.may.troubles() * 2);
        let spacing = self.window / 2 + (self.guard / 2 + 4) * (1 << self.may.late.min(4));
        micros(self.tick * (slots * spacing + self.pause * self.may.paused))
    }
}

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Claim::ALL.map(Claim::property).into()
    }
}

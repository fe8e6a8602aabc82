//! What must hold in every state: the five parts of the promise, and that pauses hold.

use stateright::{Expectation, Property};

use super::messages::{Answer, Call};
use super::process::{Process, Request};
use super::setup::Setup;
use super::world::{Handed, Owner, World};
use crate::listed::listed;
use crate::store::{Outcome, Slot};

listed! {
    /// A part of the promise.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(super) enum Claim {
        /// In any half-open interval of the window's length, no more depart than the limit.
        NeverMore,
        /// Whoever waits departs, and in bounded time; nobody fails, whatever is lost. An outage is shorter here than
        /// anybody's patience.
        NeverDropped,
        /// Slots are handed out in the order of the calls, but for those that were given back; and in a
        /// process who comes first departs first, unless it is late.
        InOrder,
        /// A request is asked for once, and once more for each time that somebody was late or told to pause, or a call
        /// was lost that asked for slots. A driver that has looked does so again only when something has happened.
        OneRoundTrip,
        /// What the store has charged is somebody's, or was lost with a process or a call, or not given back in an
        /// outage; in the end nothing is left. What a process gives back it can have again.
        NothingLeaks,
        /// Nothing departs in a pause that its process has heard of, but what was about to. The store hands out
        /// no slot in one.
        PausesHold,
    }
}

impl Claim {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NeverMore => "never more",
            Self::NeverDropped => "never dropped",
            Self::InOrder => "in order",
            Self::OneRoundTrip => "one round trip",
            Self::NothingLeaks => "nothing leaks",
            Self::PausesHold => "pauses hold",
        }
    }

    pub(super) fn property(self) -> Property<Setup> {
        let condition: fn(&Setup, &World) -> bool = match self {
            Self::NeverMore => |_, world| !world.has_broken(Self::NeverMore),
            Self::NeverDropped => |setup, world| {
                !world.has_broken(Self::NeverDropped)
                    && world.all_are_served()
                    && (!world.is_over(setup) || world.nobody_waits())
            },
            Self::InOrder => |_, world| !world.has_broken(Self::InOrder),
            Self::OneRoundTrip => |_, world| {
                asks_are_bounded(world) && world.processes.iter().all(|it| !it.is_restless)
            },
            Self::NothingLeaks => |setup, world| {
                !world.has_broken(Self::NothingLeaks)
                    && whatever_is_charged_is_somebodys(world)
                    && whoever_has_a_slot_holds_it(world)
                    && (!world.is_over(setup) || world.is_clean())
            },
            Self::PausesHold => |_, world| !world.has_broken(Self::PausesHold),
        };
        Property {
            expectation: Expectation::Always,
            name: self.name(),
            condition,
        }
    }
}

fn asks_are_bounded(world: &World) -> bool {
    world.processes.iter().all(|process| {
        let waiting = process.requests.iter().filter_map(Request::waiting);
        waiting
            .max_by_key(|it| it.calls)
            .is_none_or(|it| it.calls <= 1 + process.excuses)
    })
}

/// Every record in the store's log is that of a departure, of a slot that is held or on offer, or one that
/// was lost.
fn whatever_is_charged_is_somebodys(world: &World) -> bool {
    let counts = |record: &u64| record + world.window > world.now();
    let free = world.ledger.free().iter().map(|slot| slot.record);
    let handed = world.handed.iter().map(|handed| handed.record);
    let mut known: Vec<u64> = handed.chain(free).filter(counts).collect();
    let mut charged = world.ledger.records();
    charged.retain(counts);
    known.sort_unstable();
    known == charged
}

/// Every slot that was handed to a process that lives is in its line, on its way to it or back, or in a permit.
fn whoever_has_a_slot_holds_it(world: &World) -> bool {
    let counts = |&(_, record): &(u64, u64)| record + world.window > world.now();
    world.processes.iter().enumerate().all(|(number, process)| {
        let its = |handed: &&Handed| handed.owner == Owner::Process(number);
        let handed = world.handed.iter().filter(its);
        let mut handed: Vec<_> = handed.map(|it| (it.at, it.record)).filter(counts).collect();
        let mut held: Vec<_> = holdings(process).filter(counts).collect();
        handed.sort_unstable();
        held.sort_unstable();
        process.has_crashed || handed == held
    })
}

fn holdings(process: &Process) -> impl Iterator<Item = (u64, u64)> {
    let name = |slot: &Slot| (slot.at, slot.record);
    let queue = &process.queue;
    let line = queue.segments.iter().flat_map(|segment| segment.slots());
    let due = queue.due_slots.iter().map(|(_, held)| held);
    let permits = process.requests.iter().filter_map(|request| match request {
        Request::Permitted(held, _) => Some(held),
        _ => None,
    });
    let held = line.chain(due).chain(permits).map(|held| &held.slot);
    let leaving = process.calls.iter().flat_map(|(_, call)| match call {
        Call::Release(_, slots) => &slots[..],
        _ => &[],
    });
    let coming = process.answers.iter().flat_map(|(_, answer)| match answer {
        Answer::Reserved(_, outcomes) => &outcomes[..],
        _ => &[],
    });
    let coming = coming.filter_map(|outcome| match outcome {
        Outcome::Granted(slot) => Some(slot),
        Outcome::Refused { .. } => None,
    });
    let slots = held.chain(&queue.surplus).chain(leaving).chain(coming);
    slots.map(name)
}

//! What many keys ask for, on its way: [`Parcel`].

use std::collections::VecDeque;

use hashbrown::HashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::calls::Asking;
use super::reply::Answer;
use super::script::Scripts;

/// The most keys, and about the most requests, that share a call: none holds the server up for long.
const MOST_KEYS: usize = 256;
const MOST_REQUESTS: usize = 2_000;

/// What one key asks for, and who waits for the answer.
pub(super) struct Parcel {
    pub(super) place: u16,
    pub(super) asking: Box<Asking>,
    pub(super) deadline: Instant,
    pub(super) back: oneshot::Sender<Delivery>,
}

pub(super) enum Delivery {
    Answer(Answer),
    /// It was not sent: who was to do so had to stop.
    Back(Box<Asking>),
}

/// What the same scripts answer.
pub(super) struct Gathered {
    scripts: &'static Scripts,
    parcels: VecDeque<Parcel>,
}

/// What goes to one place, in one call.
pub(super) struct Group {
    pub(super) place: u16,
    pub(super) parcels: Vec<Parcel>,
    /// Until when anybody waits.
    pub(super) latest: Instant,
}

impl Gathered {
    pub(super) fn new(scripts: &'static Scripts, first: Parcel) -> Self {
        let parcels = VecDeque::from([first]);
        Self { scripts, parcels }
    }

    pub(super) fn is_of(&self, scripts: &Scripts) -> bool {
        std::ptr::eq(self.scripts, scripts)
    }

    pub(super) fn push(&mut self, parcel: Parcel) {
        self.parcels.push_back(parcel);
    }

    /// As much as may go at once.
    pub(super) fn take(&mut self) -> Vec<Parcel> {
        let (mut taken, mut requests) = (Vec::new(), 0);
        while taken.len() < MOST_KEYS
            && requests < MOST_REQUESTS
            && let Some(parcel) = self.parcels.pop_front()
        {
            requests += parcel.asking.requests();
            taken.push(parcel);
        }
        taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    pub(super) fn into_parcels(self) -> impl Iterator<Item = Parcel> {
        self.parcels.into_iter()
    }
}

/// By the place that they go to.
pub(super) fn groups(parcels: Vec<Parcel>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known = HashMap::new();
    for parcel in parcels {
        let place = parcel.place;
        let at = *known.entry(place).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Group {
                place,
                parcels: Vec::new(),
                latest: parcel.deadline,
            });
        }
        let group = &mut groups[at];
        group.latest = group.latest.max(parcel.deadline);
        group.parcels.push(parcel);
    }
    groups
}

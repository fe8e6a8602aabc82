//! What random calls have come to: [`Seen`].

use std::collections::BTreeSet;

use super::Parcel;
use crate::store::Outcome;
use crate::store::redis::reply::Answer;

/// What has occurred, so that nothing goes without saying.
#[derive(Debug, Default)]
pub(super) struct Seen {
    shared: usize,
    twice: usize,
    spoilt: usize,
    good_beside_spoilt: usize,
    peeks: usize,
    pub(super) free: usize,
    refused: usize,
}

impl Seen {
    pub(super) fn note(&mut self, parcels: &[Parcel], answers: &[Answer]) {
        self.shared += usize::from(parcels.len() > 1);
        let places: BTreeSet<_> = parcels.iter().map(|it| it.place).collect();
        self.twice += usize::from(places.len() < parcels.len());
        self.peeks += parcels.iter().filter(|it| it.peek).count();
        let good = answers.iter().flatten().collect::<Vec<_>>();
        let spoilt = answers.len() - good.len();
        self.spoilt += spoilt;
        self.good_beside_spoilt += if spoilt > 0 { good.len() } else { 0 };
        let outcomes = good.iter().flat_map(|it| it.outcomes());
        let is_refused = |it: &&Outcome| matches!(it, Outcome::Refused { .. });
        self.refused += outcomes.filter(is_refused).count();
    }

    pub(super) fn assert_all(&self) {
        let Self {
            shared,
            twice,
            spoilt,
            good_beside_spoilt,
            peeks,
            free,
            refused,
        } = *self;
        let all = [
            shared,
            twice,
            spoilt,
            good_beside_spoilt,
            peeks,
            free,
            refused,
        ];
        assert!(all.iter().all(|&times| times > 10), "{self:?}");
    }
}

//! What is wrong with a store, and for how long: [`Fault`].

use std::time::Duration;

use crate::store::StoreError;

/// What is wrong with a [`FailingStore`](super::FailingStore).
///
/// The kinds are those that a limiter tells apart, by [`StoreError::is_outage`] and
/// [`StoreError::is_outcome_unknown`]:
///
/// | | the call takes place | signs of life | an outage | outcome unknown | as when Redis |
/// | --- | --- | --- | --- | --- | --- |
/// | [`Unreachable`](Self::Unreachable) | no | no | yes | no | is down |
/// | [`ReadOnly`](Self::ReadOnly) | no | yes | yes | no | has become a replica, or has no memory left |
/// | [`Refusal`](Self::Refusal) | no | yes | no | no | does not know the user's right |
/// | [`LostReply`](Self::LostReply) | yes | no | yes | yes | hangs, or the connection breaks |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Nobody answers: nothing takes place, and nothing is [heard](crate::store::Listen) of what others say.
    Unreachable,
    /// It gives signs of life, and refuses all else for as long as this lasts.
    ReadOnly,
    /// It refuses what it is asked, and would do so again: no outage, so the limiter does not wait for an end of
    /// it, and [`Outage`](crate::Outage) has no say in it.
    Refusal,
    /// What it is asked for takes place, and the answer is lost: slots are reserved that nobody uses. With a
    /// [latency](super::FailingStore::latency) of a second, it is a store that hangs, and a caller whose
    /// timeout that is.
    LostReply,
}

impl Fault {
    /// What the caller of such a call gets, if it fails.
    fn error(self, kind: Kind) -> Option<StoreError> {
        let lost = StoreError::new("the connection to the store was lost");
        match self {
            Self::Unreachable => Some(StoreError::new("the store cannot be reached")),
            Self::LostReply if kind == Kind::Change => Some(lost.outcome_unknown()),
            Self::LostReply => Some(lost),
            Self::ReadOnly | Self::Refusal if kind == Kind::Check => None,
            Self::ReadOnly => Some(StoreError::new("the store takes no writes")),
            Self::Refusal => Some(StoreError::new("the store refused the call").no_outage()),
        }
    }
}

/// What a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It asks for a sign of life.
    Check,
    /// It records nothing.
    Look,
    /// It records something.
    Change,
}

/// What is to go wrong, and what did so far.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// And for how many more calls, if not until told.
    fault: Option<(Fault, Option<u64>)>,
    pub(super) latency: Duration,
    pub(super) calls: u64,
    pub(super) checks: u64,
    pub(super) failures: u64,
}

/// What becomes of one call.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) takes_place: bool,
    pub(super) error: Option<StoreError>,
    pub(super) latency: Duration,
    /// Whether the store can be reached again from now on.
    pub(super) is_mended: bool,
}

impl Plan {
    /// Sets what goes wrong from now on.
    pub(super) fn go_wrong(&mut self, fault: Option<(Fault, Option<u64>)>) {
        self.fault = fault.filter(|&(_, left)| left != Some(0));
    }

    /// Whether nobody hears anything of the store.
    pub(super) fn is_cut_off(&self) -> bool {
        matches!(self.fault, Some((Fault::Unreachable, _)))
    }

    /// Counts a call, and says what becomes of it.
    pub(super) fn next(&mut self, kind: Kind) -> Fate {
        let was_cut_off = self.is_cut_off();
        let fault = self.fault.map(|(fault, _)| fault);
        if let Some((_, Some(left))) = &mut self.fault {
            *left -= 1;
            if *left == 0 {
                self.fault = None;
            }
        }
        let error = fault.and_then(|fault| fault.error(kind));
        let count = match kind {
            Kind::Check => &mut self.checks,
            Kind::Look | Kind::Change => &mut self.calls,
        };
        *count += 1;
        self.failures += u64::from(error.is_some());
        Fate {
            takes_place: error.is_none() || fault == Some(Fault::LostReply),
            error,
            latency: self.latency,
            is_mended: was_cut_off && !self.is_cut_off(),
        }
    }
}

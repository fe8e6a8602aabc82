//! What may be wrong with the code: each breaks the claim that it should.

use super::claims::Claim;

/// A mistake in the code, to see that it would be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The store records a departure at its slot, and not at the latest moment at which it may be.
    RecordsNoGuard,
    /// A process does not look whether its slot has expired.
    DepartsHoweverLate,
    /// A process takes its slots as if the store's answer had come the moment it asked.
    ReadsAnswersAsIfTheyTookNoTime,
    /// The store loses its state once.
    ForgetsEverything,
    /// What is given back arrives after what is asked for next.
    LetsCallsOvertakeReleases,
    /// When somebody leaves, those behind move up in another order.
    MovesUpInTheWrongOrder,
    /// A slot that somebody held who left is neither handed on nor given back.
    KeepsWhatTheCancelledHeld,
    /// A process that hears of a pause keeps the slots that it holds.
    LeavesHeldSlotsInAPause,
    /// Nobody is told that their slot has come.
    WakesNobody,
    /// A process asks for new slots whenever one has come.
    AsksAnewWhenItWakes,
    /// A process whose call was lost lets those fail for whom it has asked.
    DropsWhoAskedInVain,
    /// A process that gets a sign of life does not ask for those who wait.
    NeverLooksAgain,
    /// A driver whose look is not answered when the next one is due wakes for that without end.
    WakesForWhatHasPassed,
}

impl Fault {
    pub(super) const ALL: [Self; 13] = [
        Self::RecordsNoGuard,
        Self::DepartsHoweverLate,
        Self::ReadsAnswersAsIfTheyTookNoTime,
        Self::ForgetsEverything,
        Self::LetsCallsOvertakeReleases,
        Self::MovesUpInTheWrongOrder,
        Self::KeepsWhatTheCancelledHeld,
        Self::LeavesHeldSlotsInAPause,
        Self::WakesNobody,
        Self::AsksAnewWhenItWakes,
        Self::DropsWhoAskedInVain,
        Self::NeverLooksAgain,
        Self::WakesForWhatHasPassed,
    ];

    /// The claim that it breaks.
    pub(super) fn breaks(self) -> Claim {
        match self {
            Self::RecordsNoGuard
            | Self::DepartsHoweverLate
            | Self::ReadsAnswersAsIfTheyTookNoTime
            | Self::ForgetsEverything => Claim::NeverMore,
            Self::WakesNobody | Self::DropsWhoAskedInVain | Self::NeverLooksAgain => {
                Claim::NeverDropped
            }
            Self::MovesUpInTheWrongOrder => Claim::InOrder,
            Self::AsksAnewWhenItWakes | Self::WakesForWhatHasPassed => Claim::OneRoundTrip,
            Self::KeepsWhatTheCancelledHeld | Self::LetsCallsOvertakeReleases => {
                Claim::NothingLeaks
            }
            Self::LeavesHeldSlotsInAPause => Claim::PausesHold,
        }
    }
}

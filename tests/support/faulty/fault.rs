//! What may be wrong with a store: [`Fault`].

use std::time::Duration;

use tower_throttle::{Algorithm, Quota, WindowStart};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    ForgetsToRecord,
    HandsOutOneSlotTwice,
    RecordsTooEarly,
    ForgetsTheBuffer,
    ForgetsTheCost,
    TakesBucketsForWindows,
    HasOneBucketOnly,
    LetsSpacedRequestsBurst,
    LetsLeakyBucketsBurst,
    LetsGcraBurstTwice,
    StartsWindowsWithTheFirstRequest,
    StartsWindowsByTheClock,
    OpensWindowsTooEarly,
    LetsGuardsReachIntoTheNextWindow,
    CutsLongGuards,
    IgnoresTheCapacity,
    HoldsOneMoreThanTheCapacity,
    HoldsOneLessThanTheCapacity,
    ForgetsThatItWasFull,
    LeaksTooSlowly,
    ForgetsAllQuotasButOne,
    ForgetsOneOfAll(usize),
    ChargesTheRefused,
    ChargesTheRefusedOfMany,
    SaysThatAllRemains,
    SaysThatOneMoreRemainsUnlessOfALog,
    SaysTheResetTooEarly,
    IgnoresMaxWait,
    RoundsTheWaitUp,
    RoundsTheWaitDown,
    IgnoresNotBefore,
    LetsTimeGoBack,
    SaysThatItIsNotReady,
    IgnoresReleases,
    TakesReleasesTwice,
    PeekSaysThatNothingRemains,
    PeekRecords,
    PeekRecordsWhereAnythingIs,
    PeekForgetsTheCost,
    PeekAddsTheAsksUp,
    PeekOverlooksFreeSlots,
    ResetsNothing,
    ResetsAllPolicies,
    ResetsAllKeys,
    ResetsByPattern,
    RefusesToResetAFreshKey,
    RecordsAReset,
    CutsLongKeys,
    IgnoresTheCaseOfKeys,
    IgnoresTheNameOfPolicies,
    ForgetsTooLate,
    HeedsLater,
    IgnoresPauses,
    IgnoresPausesOfJointQuotas,
    IgnoresPausesOf(usize),
    PausesTooBriefly,
    PausesTooLong,
    PassesAPauseByNotBefore,
    PeekIgnoresPauses,
    RemainsDuringAPause,
    ResetsBeforeAPauseEnds,
    RecordsWhoIsHeldUp,
    CountsThePauseAgainstTheCapacity,
    ShortensPauses,
    NeverExtends,
    AddsPausesUp,
    GivesUpOnLongPauses,
    TakesOldAnswers,
    TakesAllAnswersForOld,
    TakesTheFirstAnswerForOld,
    IgnoresAllowances,
    AllowsOneMore,
    AllowsForTooLong,
    PeekIgnoresAllowances,
    SaysThatMoreIsAllowed,
    ForgetsTheCostUnderAnAllowance,
    AllowsMoreWhenTold,
    NeverAllowsLess,
    AllowanceEndsAPause,
    PauseEndsAnAllowance,
    ForgetsFreeSlotsUnderAnAllowance,
    ForgetsToResume,
    ResumesPausesOnly,
    ResumesAllowancesOnly,
    ResumeForgetsTheLog,
    DropsTheLogOnAPause,
    FreeSlotsPassAPause,
    LosesFreeSlotsInAPause,
    PausesAllKeys,
    PausesAllPolicies,
    ResumesAllKeys,
    ResumesAllPolicies,
    TellsGuardsApart,
    KeepsPausesAfterReset,
    KeepsAllowancesAfterReset,
    ResetsTheWordsOfAllKeys,
    ForgetsWordsTooLate,
    RemembersPausesThatAreOver,
    RemembersAllowancesThatAreOver,
    VoidsNothing,
    VoidsTooLittle,
    VoidsTooMuch,
    VoidsWhatWasReservedSince,
    OverlooksTheLastReserved,
    VoidsOnceOnly,
    VoidsNothingOnResume,
    VoidsThePauseOnlyOnResume,
    ConcernsSomebodyInVain,
    LookingRecords,
    ForgetsHowItStands,
    ForgetsThePauseWhereItStands,
    ForgetsTheAllowanceWhereItStands,
    TellsNobody,
    TellsTheWrongKey,
    TellsKeysUpToAZero,
    TellsTheWrongPolicy,
    TellsAnEmptyNotice,
    TellsOfNoPause,
    TellsOfPausesOnly,
    TellsNobodyOfResuming,
    TellsOneListenerOnly,
    StopsAtAListenerThatIsGone,
    KeepsListenersAlive,
    /// Which is no fault.
    TellsOfGapsOnly,
}

impl Fault {
    /// How many ways to count there are, where windows of both beginnings are two.
    pub(crate) const WAYS: usize = 7;

    /// The quota that it goes by instead of this one.
    pub(super) fn quota(self, quota: Quota) -> Quota {
        use Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingBuckets, Spacing};
        let fixed = |start| FixedWindow { start };
        let short = quota.window() < Duration::from_secs(1);
        let counted_by = match (self, quota.counted_by()) {
            (Self::TakesBucketsForWindows, SlidingBuckets { .. }) => fixed(WindowStart::Clock),
            (Self::HasOneBucketOnly, SlidingBuckets { .. }) => SlidingBuckets { buckets: 1 },
            (Self::LetsSpacedRequestsBurst, Spacing) => Gcra { burst: 2 },
            (Self::LetsLeakyBucketsBurst, LeakyBucket { .. }) => Gcra { burst: 4 },
            (Self::LetsGcraBurstTwice, Gcra { burst }) => Gcra { burst: burst * 2 },
            (Self::StartsWindowsWithTheFirstRequest, FixedWindow { .. }) => {
                fixed(WindowStart::FirstRequest)
            }
            (Self::StartsWindowsByTheClock, FixedWindow { .. }) => fixed(WindowStart::Clock),
            (Self::IgnoresTheCapacity, LeakyBucket { .. }) => Spacing,
            (Self::HoldsOneMoreThanTheCapacity, LeakyBucket { capacity }) => LeakyBucket {
                capacity: capacity + 1,
            },
            (Self::HoldsOneLessThanTheCapacity, LeakyBucket { capacity }) if capacity > 1 => {
                LeakyBucket {
                    capacity: capacity - 1,
                }
            }
            (Self::LeaksTooSlowly, LeakyBucket { .. }) if quota.window().subsec_millis() > 0 => {
                return Quota::new(quota.limit(), quota.window() * 2).algorithm(quota.counted_by());
            }
            (Self::ForgetsTooLate, algorithm)
                if short && !matches!(algorithm, FixedWindow { .. }) =>
            {
                return Quota::new(quota.limit(), quota.window() * 3).algorithm(algorithm);
            }
            (_, algorithm) => algorithm,
        };
        quota.algorithm(counted_by)
    }

    /// Of this many ways to count, the one that this quota is counted by.
    pub(super) fn place(quota: Quota) -> usize {
        match quota.counted_by() {
            Algorithm::SlidingLog => 0,
            Algorithm::SlidingBuckets { .. } => 1,
            Algorithm::Spacing => 2,
            Algorithm::LeakyBucket { .. } => 3,
            Algorithm::Gcra { .. } => 4,
            Algorithm::FixedWindow {
                start: WindowStart::Clock,
            } => 5,
            _ => 6,
        }
    }
}

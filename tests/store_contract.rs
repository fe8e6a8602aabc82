//! Every store of this crate keeps the contract, and the contract finds stores that do not.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redis::aio::ConnectionManager;
use support::faulty::{Fault, Faulty};
use support::pass_on::pass_on;
use support::redis_server::RedisServer;
use tower_throttle::store::{MemoryStore, RedisStore, Store};
use tower_throttle::test_util::store_contract;

/// What a machine may need that does many other things; no test waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn a_memory_store_keeps_the_contract_while_time_stands_still() {
    store_contract(async || MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_memory_store_keeps_the_contract_by_the_real_clock() {
    let store = MemoryStore::new();
    store_contract(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connected_redis_store_keeps_the_contract() {
    let server = RedisServer::start();
    store_contract(async || {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        store.timeout(PATIENCE)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_store_on_a_multiplexed_connection_keeps_the_contract() {
    let server = RedisServer::start();
    let connection = server
        .client()
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let store = RedisStore::from(connection).timeout(PATIENCE);
    store_contract(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_store_on_a_connection_manager_keeps_the_contract() {
    let server = RedisServer::start();
    let manager = ConnectionManager::new(server.client())
        .await
        .expect("a connection");
    let store = RedisStore::from(manager)
        .prefix("other")
        .expect("a prefix")
        .timeout(PATIENCE);
    store_contract(async || store.clone()).await;
}

/// What the contract says of a store with this fault; `None` if it finds nothing.
fn verdict(fault: Fault) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let make = async || Faulty::new(fault);
    let test = AssertUnwindSafe(|| runtime.block_on(store_contract(make)));
    let panic = catch_unwind(test).err()?;
    Some(*panic.downcast::<String>().expect("a message"))
}

#[test]
fn the_contract_finds_each_fault_and_names_the_clause() {
    let mut missed = Vec::new();
    for (fault, clause) in FAULTS.into_iter().chain(FAULTS_OF_WORDS) {
        let verdict = verdict(fault).unwrap_or_default();
        if !verdict.starts_with(&format!("the store breaks its contract: {clause}: ")) {
            missed.push(format!("{fault:?}, {clause}: {verdict}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn the_contract_misses_none_of_many_quotas() {
    for place in 0..Fault::WAYS {
        let verdict = verdict(Fault::ForgetsOneOfAll(place));
        let verdict = verdict.unwrap_or_else(|| panic!("number {place} is not missed"));
        let clause = "a mixture of all algorithms holds every bound";
        assert!(verdict.contains(clause), "number {place}: {verdict}");
    }
}

#[test]
fn the_contract_misses_a_pause_of_no_algorithm() {
    for place in 0..Fault::WAYS {
        let verdict = verdict(Fault::IgnoresPausesOf(place));
        let verdict = verdict.unwrap_or_else(|| panic!("number {place} is not missed"));
        let clause = "no slot lies within a pause";
        assert!(verdict.contains(clause), "number {place}: {verdict}");
    }
}

#[test]
fn the_contract_finds_nothing_where_there_is_no_fault() {
    assert_eq!(verdict(Fault::None), None);
}

#[test]
fn a_store_that_makes_all_listeners_look_keeps_the_contract() {
    assert_eq!(verdict(Fault::TellsOfGapsOnly), None);
}

/// A store that does what it must, and nothing of what it may.
#[derive(Debug)]
struct Plain(MemoryStore);

impl Store for Plain {
    pass_on!(0: reserve, release, peek, heed, reset);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_tells_no_listener_keeps_the_contract() {
    let store = Plain(MemoryStore::new());
    assert!(!store.is_listening());
    store_contract(async || Plain(MemoryStore::new())).await;
}

/// In the order of the clauses.
const FAULTS: [(Fault, &str); 50] = {
    use Fault::*;
    [
        (ForgetsToRecord, "a sliding log never exceeds its limit"),
        (
            HandsOutOneSlotTwice,
            "a sliding log never exceeds its limit",
        ),
        (RecordsTooEarly, "a sliding log never exceeds its limit"),
        (ForgetsTheBuffer, "a sliding log never exceeds its limit"),
        (
            TakesBucketsForWindows,
            "sliding buckets never exceed their limit",
        ),
        (HasOneBucketOnly, "sliding buckets never exceed their limit"),
        (LetsSpacedRequestsBurst, "spacing keeps its gaps"),
        (LetsLeakyBucketsBurst, "a leaky bucket keeps its gaps"),
        (LetsGcraBurstTwice, "gcra keeps its burst and rate"),
        (ForgetsTheCost, "costs count as so many"),
        (
            StartsWindowsWithTheFirstRequest,
            "windows of the clock hold no more than their limit",
        ),
        (
            StartsWindowsByTheClock,
            "windows from the first request hold no more than their limit",
        ),
        (
            IgnoresTheCapacity,
            "a leaky bucket holds as many as its capacity",
        ),
        (
            HoldsOneMoreThanTheCapacity,
            "a leaky bucket holds as many as its capacity",
        ),
        (
            HoldsOneLessThanTheCapacity,
            "a leaky bucket holds as many as its capacity",
        ),
        (ForgetsThatItWasFull, "a full leaky bucket records nothing"),
        (LeaksTooSlowly, "a leaky bucket leaks by itself"),
        (ForgetsAllQuotasButOne, "joint quotas all hold"),
        (ChargesTheRefused, "joint quotas are charged all or none"),
        (
            ChargesTheRefusedOfMany,
            "a mixture of all algorithms is charged all or none",
        ),
        (IgnoresMaxWait, "joint quotas are charged all or none"),
        (SaysThatAllRemains, "what remains of a log is told"),
        (
            SaysThatOneMoreRemainsUnlessOfALog,
            "as many as remain depart at once",
        ),
        (SaysTheResetTooEarly, "the reset tells when all remain"),
        (SaysThatItIsNotReady, "a local store answers at once"),
        (RoundsTheWaitUp, "a refusal records nothing"),
        (RoundsTheWaitDown, "a refusal records nothing"),
        (IgnoresNotBefore, "no slot lies before not before"),
        (LetsTimeGoBack, "the time never goes back"),
        (
            OpensWindowsTooEarly,
            "a window begins with the first request after the last",
        ),
        (
            LetsGuardsReachIntoTheNextWindow,
            "no guard reaches into the next window",
        ),
        (
            CutsLongGuards,
            "who may depart in several windows counts in all",
        ),
        (IgnoresReleases, "the last slots leave no trace"),
        (TakesReleasesTwice, "the last slots leave no trace"),
        (CutsLongKeys, "strange keys are keys of their own"),
        (IgnoresTheCaseOfKeys, "strange keys are keys of their own"),
        (
            IgnoresTheNameOfPolicies,
            "other policies do not affect each other",
        ),
        (
            PeekSaysThatNothingRemains,
            "a peek at a fresh key finds nothing",
        ),
        (PeekRecords, "a peek at a fresh key finds nothing"),
        (PeekRecordsWhereAnythingIs, "a peek records nothing"),
        (
            PeekForgetsTheCost,
            "the wait that a peek tells is what the next has",
        ),
        (PeekAddsTheAsksUp, "a peek answers each request alone"),
        (PeekOverlooksFreeSlots, "a peek leaves a free slot free"),
        (ResetsNothing, "a reset forgets all of a key"),
        (ResetsAllPolicies, "a reset leaves all others alone"),
        (ResetsAllKeys, "a reset leaves all others alone"),
        (ResetsByPattern, "a reset leaves all others alone"),
        (RefusesToResetAFreshKey, "a reset of a fresh key is none"),
        (RecordsAReset, "a reset of a fresh key is none"),
        (ForgetsTooLate, "what has passed is forgotten"),
    ]
};

/// The same for what is said of keys.
const FAULTS_OF_WORDS: [(Fault, &str); 71] = {
    use Fault::*;
    [
        (HeedsLater, "a local store answers at once"),
        (IgnoresPauses, "no slot lies within a pause"),
        (IgnoresPausesOfJointQuotas, "no slot lies within a pause"),
        (PausesTooBriefly, "no slot lies within a pause"),
        (PausesTooLong, "no slot lies within a pause"),
        (PassesAPauseByNotBefore, "no slot lies within a pause"),
        (
            PeekIgnoresPauses,
            "who comes during a pause is told of its end",
        ),
        (
            RemainsDuringAPause,
            "who comes during a pause is told of its end",
        ),
        (
            ResetsBeforeAPauseEnds,
            "who comes during a pause is told of its end",
        ),
        (
            RecordsWhoIsHeldUp,
            "who does not wait for a pause leaves no trace",
        ),
        (
            CountsThePauseAgainstTheCapacity,
            "a pause fills no leaky bucket",
        ),
        (ShortensPauses, "a shorter pause leaves a longer one"),
        (AddsPausesUp, "a shorter pause leaves a longer one"),
        (NeverExtends, "a longer pause extends a shorter one"),
        (GivesUpOnLongPauses, "a longer pause extends a shorter one"),
        (TakesOldAnswers, "an old answer extends no pause"),
        (TakesAllAnswersForOld, "an old answer extends no pause"),
        (TakesTheFirstAnswerForOld, "an old answer extends no pause"),
        (IgnoresAllowances, "no more than is allowed departs"),
        (AllowsOneMore, "no more than is allowed departs"),
        (AllowsForTooLong, "no more than is allowed departs"),
        (PeekIgnoresAllowances, "no more than is allowed departs"),
        (SaysThatMoreIsAllowed, "no more than is allowed departs"),
        (
            ForgetsTheCostUnderAnAllowance,
            "costs count for an allowance",
        ),
        (AllowsMoreWhenTold, "an allowance never rises"),
        (NeverAllowsLess, "an allowance never rises"),
        (AllowanceEndsAPause, "a pause and an allowance hold both"),
        (PauseEndsAnAllowance, "a pause and an allowance hold both"),
        (
            ForgetsFreeSlotsUnderAnAllowance,
            "a free slot counts for an allowance",
        ),
        (ForgetsToResume, "resuming ends whatever was said"),
        (ResumesPausesOnly, "resuming ends whatever was said"),
        (ResumesAllowancesOnly, "resuming ends whatever was said"),
        (ResumeForgetsTheLog, "resuming ends whatever was said"),
        (
            DropsTheLogOnAPause,
            "what lies behind a pause stays charged",
        ),
        (
            FreeSlotsPassAPause,
            "a free slot within a pause serves nobody",
        ),
        (
            LosesFreeSlotsInAPause,
            "a free slot within a pause serves nobody",
        ),
        (PausesAllKeys, "words concern one key under one policy"),
        (PausesAllPolicies, "words concern one key under one policy"),
        (ResumesAllKeys, "words concern one key under one policy"),
        (ResumesAllPolicies, "words concern one key under one policy"),
        (TellsGuardsApart, "policies of one id share what was said"),
        (KeepsPausesAfterReset, "a reset forgets what was said"),
        (KeepsAllowancesAfterReset, "a reset forgets what was said"),
        (ResetsTheWordsOfAllKeys, "a reset forgets what was said"),
        (ForgetsWordsTooLate, "what was said is forgotten in time"),
        (
            RemembersPausesThatAreOver,
            "what was said is forgotten in time",
        ),
        (
            RemembersAllowancesThatAreOver,
            "what was said is forgotten in time",
        ),
        (VoidsNothing, "a word voids what was reserved before"),
        (VoidsTooLittle, "a word voids what was reserved before"),
        (VoidsTooMuch, "a word voids what was reserved before"),
        (
            VoidsWhatWasReservedSince,
            "a word voids what was reserved before",
        ),
        (
            OverlooksTheLastReserved,
            "a word voids what was reserved before",
        ),
        (VoidsOnceOnly, "a word voids what was reserved before"),
        (
            VoidsNothingOnResume,
            "resuming voids what was reserved before",
        ),
        (
            VoidsThePauseOnlyOnResume,
            "resuming voids what was reserved before",
        ),
        (
            ConcernsSomebodyInVain,
            "a word that changes nothing voids nothing",
        ),
        (LookingRecords, "a word that changes nothing voids nothing"),
        (ForgetsHowItStands, "how a key stands is told"),
        (ForgetsThePauseWhereItStands, "how a key stands is told"),
        (ForgetsTheAllowanceWhereItStands, "how a key stands is told"),
        (TellsNobody, "whoever listens is told"),
        (TellsTheWrongKey, "whoever listens is told"),
        (TellsKeysUpToAZero, "whoever listens is told"),
        (TellsTheWrongPolicy, "whoever listens is told"),
        (TellsAnEmptyNotice, "whoever listens is told"),
        (TellsOfNoPause, "whoever listens is told"),
        (TellsOfPausesOnly, "whoever listens is told"),
        (TellsNobodyOfResuming, "whoever listens is told"),
        (TellsOneListenerOnly, "whoever listens is told"),
        (StopsAtAListenerThatIsGone, "a listener may leave"),
        (KeepsListenersAlive, "a listener may leave"),
    ]
};

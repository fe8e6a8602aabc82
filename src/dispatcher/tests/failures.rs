//! Stores that refuse, panic, or do not reply, and what is left after an outage.

use super::*;
use crate::algorithm::Taken;

fn with_fallback(policy: Arc<Policy>, fallback: Arc<Policy>) -> Arc<Policy> {
    let mut policy = Arc::unwrap_or_clone(policy);
    policy.fallback = Some(fallback);
    policy.into()
}

fn pause(span: Duration) -> Command {
    Command::Pause {
        span: span.as_micros() as u64,
        evidence: u64::MAX,
    }
}

impl Remote {
    /// Another process applies an operation.
    fn apply(&self, handle: &Handle, operation: &Operation) -> Taken {
        let (policy, now) = (handle.policy(), Instant::now());
        let (_, taken) = self.memory.apply(&key(), &policy, operation, now);
        taken.unwrap()
    }

    fn remaining(&self, handle: &Handle) -> u32 {
        let peek = Take::one(Mode::Peek, 1);
        self.apply(handle, &Operation::Take(peek)).remaining.0[0]
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_or_panics_is_rarely_called_until_it_is_back() {
    for fault in [Fault::Reply, Fault::Panics] {
        let (store, handle) = served(policy("10/s"));
        depart(&handle, 1).await.unwrap();
        store.set(fault);
        let waiting = spawn(&handle, 1);
        pass(1_000).await;
        assert!(!waiting.is_finished());
        assert!(store.calls() <= 50, "{} calls", store.calls());
        store.set(Fault::None);
        let departed = timeout(2 * SECOND, waiting).await.expect("in time");
        departed.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_a_key_or_does_not_answer_is_rarely_called() {
    for (fault, most) in [(Fault::Refuses, 2), (Fault::Silent, 20), (Fault::Short, 20)] {
        let (store, handle) = served(policy("10/s"));
        // The second refusal comes when the round trip is known.
        for _ in 0..2 {
            store.set(fault);
            let before = store.calls();
            let refused = timeout(20 * SECOND, depart(&handle, 1)).await;
            assert!(matches!(refused, Ok(Err(Refusal::Store(_)))), "{refused:?}");
            pass(1_000).await;
            let calls = store.calls() - before;
            assert!(calls <= most, "{fault:?}: {calls} calls");
            store.set(Fault::None);
            pass(10_000).await;
            depart(&handle, 1).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_joins_as_an_outage_ends_is_served() {
    let (_, handle) = served(policy("10/s"));
    depart(&handle, 1).await.unwrap();
    let start = Instant::now();
    let waiting = spawn(&handle, 1);
    // The outage ends after the dispatcher has looked, and before it reports it to the queue.
    let error = StoreError::new("the store is out");
    let queues = handle.dispatcher.queues().into_iter();
    let queues: Vec<_> = queues.map(|queue| (0, queue)).collect();
    handle.dispatcher.call_shard(&queues, Some(&error));
    waiting.await.unwrap().unwrap();
    assert_since(start, 0..1_000);
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_the_fallback_store_is_not_returned_to_the_store() {
    // Departures within some seconds are recorded at the same time.
    let (store, handle) = served(with_fallback(policy("2_000/h"), policy("2_000/h")));
    for _ in 0..5 {
        depart(&handle, 1).await.unwrap();
    }
    let remaining = store.remaining(&handle);
    store.set(Fault::Out);
    let granted = spawn(&handle, 1).await.unwrap().unwrap();
    store.set(Fault::None);
    pass(2_000).await;
    handle.forfeit(&key(), granted);
    pass(1_000).await;
    assert_eq!(store.remaining(&handle), remaining);
}

#[tokio::test(start_paused = true)]
async fn grants_of_the_store_are_returned_to_it_after_an_outage() {
    let (store, handle) = served(with_fallback(policy("10/h"), policy("1/h")));
    let granted = spawn(&handle, 1).await.unwrap().unwrap();
    // The answer to the call that grants the second is lost, and then the store is out.
    store.set(Fault::Reply);
    let second = spawn(&handle, 1);
    pass(10).await;
    assert_eq!(store.remaining(&handle), 8);
    store.set(Fault::Out);
    let third = spawn(&handle, 1);
    second.await.unwrap().unwrap();
    handle.forfeit(&key(), granted);
    pass(1_000).await;
    store.set(Fault::None);
    third.await.unwrap().unwrap();
    pass(1_000).await;
    // The second was counted by the fallback store, and the third by the store.
    assert_eq!(store.remaining(&handle), 9);
}

#[tokio::test(start_paused = true)]
async fn corrections_alone_are_sent_after_an_outage_if_their_key_has_moved() {
    let plain = || policy("10/h");
    for policy in [plain(), with_fallback(plain(), plain())] {
        let (store, handle) = served(policy);
        let granted = spawn(&handle, 1).await.unwrap().unwrap();
        // The task of the dispatcher has ended.
        pass(2_000).await;
        store.set(Fault::Out);
        handle.forfeit(&key(), granted);
        pass(1_000).await;
        assert_eq!(store.remaining(&handle), 9);
        store.shard.store(1, Ordering::Relaxed);
        store.set(Fault::None);
        pass(2_000).await;
        assert_eq!(store.remaining(&handle), 10);
        assert_eq!(handle.key_count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_dropped_with_corrections_in_an_outage_ends() {
    for (fault, policy) in [
        (Fault::Out, policy("10/h")),
        (Fault::Out, with_fallback(policy("10/h"), policy("10/h"))),
        (Fault::ReadOnly, policy("10/h")),
    ] {
        let (store, handle) = served(policy);
        let granted = spawn(&handle, 1).await.unwrap().unwrap();
        store.set(fault);
        handle.forfeit(&key(), granted);
        pass(1_000).await;
        assert_eq!(handle.key_count(), 1);
        let dispatcher = Arc::downgrade(&handle.dispatcher);
        drop(handle);
        pass(5_000).await;
        assert!(dispatcher.upgrade().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_conflict_bounds_hold_and_corrections_alone_are_sent_rarely_and_not_for_long() {
    for lasts in [3_000, 30_000] {
        let (store, handle) = served(policy("10/h"));
        let granted = spawn(&handle, 1).await.unwrap().unwrap();
        pass(2_000).await;
        store.set(Fault::Conflicts(false));
        let start = Instant::now();
        let refused = handle.wait(1, Some(start + SECOND)).unwrap().await;
        assert!(matches!(refused, Err(Refusal::Store(error)) if error.is_conflict()));
        assert_since(start, 1_000..1_100);
        let calls = store.calls();
        handle.forfeit(&key(), granted);
        pass(lasts).await;
        assert!(
            store.calls() - calls <= 13,
            "{} calls",
            store.calls() - calls
        );
        store.set(Fault::None);
        pass(1_500).await;
        let expected = if lasts < 10_000 { 10 } else { 9 };
        assert_eq!(
            (handle.key_count(), store.remaining(&handle)),
            (0, expected)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn places_that_nobody_uses_are_given_up_in_a_conflict() {
    for is_unknown in [false, true] {
        let (store, handle) = served(policy("3 concurrent lease=10s"));
        let granted = spawn(&handle, 1).await.unwrap().unwrap();
        store.set(Fault::Conflicts(is_unknown));
        drop(granted);
        pass(1).await;
        let calls = store.calls();
        pass(20_000).await;
        let calls = store.calls() - calls;
        assert!(calls <= 13 && handle.key_count() == 0, "{calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_with_a_grant_denies_no_other() {
    let (_, handle) = served(policy("2/h"));
    depart(&handle, 1).await.unwrap();
    let granted = handle.wait(1, None).unwrap();
    pass(5).await;
    let refused = handle.ask(Mode::Try, 1, None).unwrap().await;
    assert!(matches!(refused, Err(Refusal::Limited(_))));
    let denied = || {
        let now = Instant::now();
        (handle.denials).find(&key(), &1.into(), &Rank::default(), Some(now), now)
    };
    assert!(denied().is_some());
    drop(granted);
    assert!(denied().is_none());
}

#[tokio::test(start_paused = true)]
async fn strict_recovery_holds_up_neither_the_fallback_store_nor_the_store_after_it() {
    let mut strict = PolicyParts::of("10/m");
    strict.recovery = Recovery::Strict;
    let policy = Arc::new(strict.build().unwrap());
    let (store, handle) = served(with_fallback(policy.clone(), policy));
    // The store may have lost what was there before: its key is in quarantine.
    depart(&handle, 1).await.unwrap();
    store.set(Fault::Out);
    let start = Instant::now();
    depart(&handle, 1).await.unwrap();
    assert_since(start, 0..1_000);
    store.set(Fault::None);
    pass(2_000).await;
    let start = Instant::now();
    depart(&handle, 1).await.unwrap();
    assert_since(start, 0..1_000);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_ends_during_a_call_holds_up_no_request() {
    let store = Remote::new(Duration::from_millis(100));
    let handle = process(&store, policy("10/s"));
    depart(&handle, 1).await.unwrap();
    store.apply(&handle, &Operation::Control(pause(3_600 * SECOND)));
    let start = Instant::now();
    let waiting = spawn(&handle, 1);
    pass(50).await;
    store.apply(&handle, &Operation::Control(Command::Resume));
    handle.apply_command(&key(), &Command::Resume, Instant::now());
    waiting.await.unwrap().unwrap();
    assert_since(start, 0..1_000);
}

/// More and more requests may depart, as none does.
#[tokio::test(start_paused = true)]
async fn requests_whose_tasks_are_not_polled_let_others_past_within_the_guard() {
    const STUCK: usize = 3 * NEIGHBOURS;
    let (_, handle) = served(policy("1000/h"));
    depart(&handle, 1).await.unwrap();
    let stuck = (0..STUCK).map(|_| handle.wait(1, None).unwrap());
    let _stuck: Vec<_> = stuck.collect();
    let others: Vec<_> = (0..STUCK).map(|_| spawn(&handle, 1)).collect();
    tokio::time::sleep(handle.guard.current()).await;
    let departed = others.iter().filter(|it| it.is_finished()).count();
    assert!(departed >= NEIGHBOURS, "{departed}");
    // They keep no departures from others for long, and no places.
    for quotas in ["10/s", "1 concurrent"] {
        let (_, handle) = served(policy(quotas));
        let stuck = (0..5 * STUCK).map(|_| handle.wait(1, None).unwrap());
        let _stuck: Vec<_> = stuck.collect();
        for _ in 0..20 {
            let other = timeout(3 * SECOND, spawn(&handle, 1)).await;
            other.expect("it passes them").unwrap().unwrap();
        }
    }
}

/// The dispatcher is on time, and takes back their turns.
#[tokio::test(start_paused = true)]
async fn requests_that_are_always_polled_late_depart_at_last() {
    let handle = process(&Remote::new(SECOND / 1_000), policy("2/s"));
    let mut late: Vec<_> = (0..4).map(|_| handle.wait(1, None).unwrap()).collect();
    for _ in 0..100 {
        pass(150).await;
        late.retain_mut(|it| it.now_or_never().is_none());
    }
    assert!(late.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_try_that_misses_its_turn_does_not_wait() {
    let (store, handle) = served(policy("10/h"));
    depart(&handle, 1).await.unwrap();
    let attempt = handle.ask(Mode::Try, 1, None).unwrap();
    pass(5).await;
    assert_eq!(store.remaining(&handle), 8);
    store.apply(&handle, &Operation::Control(pause(3_600 * SECOND)));
    pass(1_000).await;
    let refused = timeout(SECOND, attempt).await.expect("at once");
    assert!(matches!(refused, Err(Refusal::Limited(_))));
}

#[tokio::test(start_paused = true)]
async fn a_try_whose_answers_are_too_late_fails_soon() {
    let handle = process(&Remote::new(SECOND), policy("10/h"));
    handle.guard.measured(SECOND / 1_000, Duration::ZERO);
    let refused = timeout(3 * SECOND, handle.ask(Mode::Try, 1, None).unwrap()).await;
    assert!(matches!(refused, Ok(Err(Refusal::Store(_)))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bound_holds_once_a_try_has_been_answered() {
    let (store, handle) = served(policy("10/h"));
    depart(&handle, 10).await.unwrap();
    let _try = tokio::spawn(handle.ask(Mode::Try, 1, None).unwrap());
    pass(1).await;
    let start = Instant::now();
    let waiting = tokio::spawn(handle.wait(1, Some(start + SECOND)).unwrap());
    store.set(Fault::Silent);
    waiting.await.unwrap().expect_err("it waits too long");
    assert_since(start, 1_000..1_100);
}

/// The second request is expected in 140 ms. The first one has a turn, which the pause takes from it.
#[tokio::test(start_paused = true)]
async fn a_pause_makes_no_estimate_late() {
    let store = Remote::new(Duration::from_millis(20));
    let handle = process(&store, policy("1/140ms"));
    depart(&handle, 1).await.unwrap();
    pass(1_000).await;
    let bound = Instant::now() + Duration::from_millis(125);
    let first = tokio::spawn(handle.wait(1, Some(bound)).unwrap());
    let _second = spawn(&handle, 1);
    pass(10).await;
    handle.apply_command(&key(), &pause(SECOND / 50), Instant::now());
    first.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_that_would_wait_too_long_fail_soon_and_are_not_ahead_of_other_processes() {
    let store = Remote::new(Duration::from_millis(2));
    let [handle, other] = [0; 2].map(|_| process(&store, policy("10/s")));
    let bound = |seconds| Some(Instant::now() + seconds * SECOND);
    let many = (0..400).map(|_| tokio::spawn(handle.wait(1, bound(20)).unwrap()));
    let many: Vec<_> = many.collect();
    pass(300).await;
    let ended = many.iter().filter(|it| it.is_finished()).count();
    assert!(ended >= 180 && store.calls() < 9, "{ended}");
    other.wait(1, bound(25)).unwrap().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_does_not_know_costs_few_calls() {
    let (store, handle) = served(policy("2/s"));
    depart(&handle, 2).await.unwrap();
    let high = Acquire::new(handle.clone(), key()).priority(Priority::High);
    let _waiting = (tokio::spawn(high), spawn(&handle, 1));
    pass(10).await;
    handle.apply_command(&key(), &pause(60 * SECOND), Instant::now());
    pass(10_000).await;
    assert!(store.calls() < 200, "{} calls", store.calls());
}

#[tokio::test(start_paused = true)]
async fn another_command_does_not_end_a_pause_that_the_store_does_not_know() {
    let (_store, handle) = served(policy("2/s"));
    depart(&handle, 2).await.unwrap();
    let waiting = spawn(&handle, 1);
    pass(10).await;
    handle.apply_command(&key(), &pause(60 * SECOND), Instant::now());
    let allow = Command::Allow {
        unit: 0,
        units: 1,
        span: 60_000_000,
        evidence: u64::MAX,
    };
    for command in [allow, pause(SECOND)] {
        handle.control(&key(), command).await.unwrap();
    }
    pass(59_000).await;
    assert!(!waiting.is_finished());
    pass(2_000).await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_command_fails_if_the_store_does_not_reply() {
    let (store, handle) = served(policy("2/s"));
    store.set(Fault::Silent);
    let key = key();
    let paused = handle.control(&key, pause(SECOND));
    let error = timeout(21 * SECOND, paused).await.unwrap().unwrap_err();
    assert!(error.is_outcome_unknown());
}

#[tokio::test(start_paused = true)]
async fn requests_whose_next_call_is_far_depart_by_the_fallback_store() {
    let (store, handle) = served(with_fallback(policy("1/h"), policy("2/h")));
    depart(&handle, 1).await.unwrap();
    let waiting = spawn(&handle, 1);
    pass(1_000).await;
    store.set(Fault::Out);
    // A request for another key notices the outage.
    let other = Acquire::new(handle.clone(), Key::new("other"));
    drop(other.await.unwrap());
    timeout(SECOND, waiting).await.unwrap().unwrap().unwrap();
}

#[test]
fn units_taken_over_from_another_share_are_reported_again_unless_a_call_may_have_done_so() {
    let mut queue = Queue::default();
    queue.took_over(5);
    let (out, unknown) = (StoreError::new("out"), StoreError::new("no reply"));
    let unknown = unknown.outcome_unknown();
    for (number, error, moved) in [(1, &out, 5), (2, &unknown, 5), (3, &out, 0)] {
        let take = queue.begin_call(number, &1.into(), None, |_| 0);
        assert_eq!(take.corrections.moved, moved);
        queue.call_failed(number, error, Instant::now());
    }
}

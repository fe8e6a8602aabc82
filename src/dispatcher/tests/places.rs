//! Places of requests in progress where something changes: quotas, limiters, runtimes and calls that are late.

use super::*;

fn aborting(quotas: &str) -> Arc<Policy> {
    let mut parts = PolicyParts::of(quotas);
    parts.lost = Lost::Abort;
    parts.build().unwrap().into()
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_if_its_concurrency_limit_is_removed_or_put_back() {
    let limited = || aborting("1 concurrent + 100/s");
    for gap in [0, 1, 50, 99, 40_000] {
        let handle = process(&Remote::new(SECOND / 10), limited());
        let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
        let passes = futures_util::future::join_all((1..4_000).map(|nth| pass(nth * 10)));
        let work = tokio::spawn(place.run(passes));
        let _waits = tokio::spawn(Acquire::new(handle.clone(), key()));
        pass(1_300).await;
        handle.set_policy(aborting("100/s"));
        pass(gap).await;
        handle.set_policy(limited());
        work.await.unwrap().unwrap();
    }
}

/// One of these moments is between the grant and the departure.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_granted_keeps_its_place_if_the_limit_is_removed_and_put_back() {
    let limited = || aborting("5 concurrent + 1/s");
    for moment in (900..1_020).step_by(10) {
        let handle = process(&Remote::new(SECOND / 500), limited());
        drop(Acquire::new(handle.clone(), key()).await.unwrap());
        let acquire = Acquire::new(handle.clone(), key());
        let work = tokio::spawn(async { acquire.await.unwrap().hold().run(pass(50)).await });
        pass(moment).await;
        handle.set_policy(aborting("1/s"));
        handle.set_policy(limited());
        let worked = work.await.unwrap();
        worked.unwrap_or_else(|error| panic!("{moment} ms: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_whose_limit_was_removed_leaves_no_call_for_the_time_of_its_renewal() {
    let handle = process(&Remote::new(SECOND / 500), policy("1 concurrent + 100/s"));
    let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
    pass(50).await;
    handle.set_policy(policy("100/s"));
    drop(place);
    pass(50).await;
    assert_eq!(handle.key_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_demand_of_requests_that_fail_by_new_quotas_leaves_the_store_at_once() {
    let handle = process(&Remote::new(SECOND / 500), policy("1/h"));
    let _departed = Acquire::new(handle.clone(), key()).await.unwrap();
    let waiting = tokio::spawn(Acquire::new(handle.clone(), key()));
    pass(50).await;
    handle.set_policy(policy("5/h unit=tokens"));
    assert!(waiting.await.unwrap().is_err());
    pass(50).await;
    assert_eq!(handle.key_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_renewed_after_a_failure_though_its_limiter_was_dropped() {
    for fault in [Fault::Out, Fault::Refuses] {
        let (store, handle) = served(policy("2 concurrent lease=30s"));
        let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
        drop(handle);
        // The renewal is due after 20 s at most.
        pass(9_000).await;
        store.set(fault);
        pass(11_500).await;
        store.set(Fault::None);
        pass(60_000).await;
        assert!(!place.is_lost(), "{fault:?}");
    }
}

/// The runtime that polls the work renews its place.
#[test]
fn work_goes_on_after_its_runtime_has_shut_down() {
    let (_, handle) = served(aborting("2 concurrent lease=1s"));
    let (first, second) = (new_runtime(), new_runtime());
    let permit = first.block_on(Acquire::new(handle, key())).unwrap();
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let mut work = Box::pin(permit.hold().run(receiver));
    first.block_on(async { timeout(SECOND / 20, &mut work).await.unwrap_err() });
    drop(first);
    second.block_on(async {
        timeout(3 * SECOND / 2, &mut work).await.unwrap_err();
        sender.send(()).unwrap();
        work.await.unwrap().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_place_is_renewed_though_a_call_before_its_departure_was_refused() {
    let (store, handle) = served(policy("5 concurrent lease=3s + 20/s spacing"));
    drop(Acquire::new(handle.clone(), key()).await.unwrap());
    pass(1_000).await;
    let take = || tokio::spawn(Acquire::new(handle.clone(), key()));
    let (one, two, three) = (take(), take(), take());
    let one = one.await.unwrap().unwrap();
    store.set(Fault::Refuses);
    drop(one);
    pass(20).await;
    store.set(Fault::None);
    let two = two.await.unwrap().unwrap().hold();
    let _three = three.await;
    pass(10_000).await;
    assert!(!two.is_lost());
}

#[tokio::test(start_paused = true)]
async fn the_share_of_an_outage_holds_for_work_that_takes_longer_than_the_lease() {
    let mut parts = PolicyParts::of("10 concurrent lease=3s");
    parts.outage = Outage::Local { share: 0.1 };
    let policy = Arc::new(parts.build().unwrap());
    for (before, millis) in [(Fault::None, 100), (Fault::Out, 5_000)] {
        let (store, handle) = served(policy.clone());
        drop(Acquire::new(handle.clone(), key()).await.unwrap());
        pass(1_000).await;
        store.set(before);
        let high = Acquire::new(handle.clone(), key()).priority(Priority::High);
        let _high = high.await.unwrap().hold();
        store.set(Fault::Out);
        pass(millis).await;
        let second = timeout(SECOND, Acquire::new(handle.clone(), key())).await;
        assert!(second.is_err(), "two of one in progress");
    }
}

#[test]
fn places_are_released_on_a_thread_without_a_runtime() {
    let policy = policy("2 concurrent lease=30s");
    let (store, handle) = served(policy.clone());
    let take = async || Acquire::new(handle.clone(), key()).await.unwrap().hold();
    let is_held = async || {
        pass(100).await;
        held(&store.memory, policy.clone()).await
    };
    let runtime = new_runtime();
    let place = runtime.block_on(take());
    std::thread::spawn(move || drop(place)).join().unwrap();
    assert_eq!(runtime.block_on(is_held()), 0);
    let place = runtime.block_on(take());
    drop(runtime);
    drop(place);
    let runtime = new_runtime();
    let _place = runtime.block_on(take());
    assert_eq!(runtime.block_on(is_held()), 1);
}

#[tokio::test(start_paused = true)]
async fn late_calls_neither_bring_a_lease_back_nor_strand_places() {
    // The call that renews takes longer than the lease, and the process is not polled at its end.
    let (_, handle) = served(aborting("2 concurrent lease=3s"));
    let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
    let (queue, now) = (handle.dispatcher.queues().remove(0), Instant::now());
    let mut locked = queue.lock();
    locked.begin_call(1 << 40, &Costs([9, 0, 0, 0]), None, |_| 0);
    let (later, mut answer) = (now + 4 * SECOND, Answer::default());
    assert!(locked.lease_end(0, later).is_none());
    let (until, renew) = (later + SECOND, later);
    answer.lease = Some(Lease { until, renew });
    locked.apply_answer(1 << 40, &answer, later);
    drop(locked);
    assert!(place.is_lost());
    drop(place);
    // A call without an answer may be executed behind the end of the lease.
    let mut locked = queue.lock();
    assert!(locked.has_places());
    locked.begin_call(2 << 40, &Costs([9, 0, 0, 0]), None, |_| 0);
    locked.call_failed(2 << 40, &StoreError::new("lost").outcome_unknown(), later);
    locked.expire_lease(until);
    assert!(locked.has_places());
}

#[tokio::test(start_paused = true)]
async fn a_place_of_a_lost_call_goes_to_another_process_at_once() {
    let (memory, network) = (MemoryStore::new(), Network::default());
    let [(store, one), (_, other)] = [(); 2].map(|()| {
        let store = Arc::new(Remote {
            memory: memory.clone(),
            network: Some(network.clone()),
            ..Remote::default()
        });
        let handle = process(&store, policy("1 concurrent lease=30s"));
        drop(handle.wait(1, None));
        (store, handle)
    });
    pass(1_000).await;
    store.set(Fault::Reply);
    let cancelled = spawn(&one, 1);
    pass(10).await;
    let waiting = spawn(&other, 1);
    pass(10).await;
    assert_eq!(held(&memory, policy("1 concurrent lease=30s")).await, 1);
    store.set(Fault::None);
    cancelled.abort();
    let start = Instant::now();
    waiting.await.unwrap().unwrap();
    assert_since(start, 0..200);
}

//! Places of requests in progress where something changes: quotas, limiters, runtimes and calls that are late.

use super::*;
use crate::acquire::Acquire;
use crate::algorithm::{Demand, Holding, State};
use crate::policy::{Lost, Outage};
use crate::priority::Priority;

fn parts(quotas: &str, lost: Lost) -> PolicyParts {
    PolicyParts {
        quotas: quotas.split(" + ").map(|it| it.parse().unwrap()).collect(),
        lost,
        ..PolicyParts::default()
    }
}

fn process(store: &Arc<Remote>, parts: &PolicyParts) -> Arc<Handle> {
    let dispatcher = Dispatcher::new(store.clone(), None, "".into());
    Handle::new(
        &dispatcher,
        parts.clone().plan().unwrap(),
        Settings::default(),
        0,
    )
}

async fn held(memory: &MemoryStore, parts: &PolicyParts) -> u32 {
    let handle = process(&Remote::on(memory.clone(), Duration::ZERO), parts);
    let peek = crate::peek::Peek::new(handle, key()).await;
    peek.unwrap().places().unwrap().held
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_if_its_concurrency_limit_is_removed() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, &parts("2 concurrent + 100/s", Lost::Abort));
    let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
    let work = tokio::spawn(place.run(pass(40_000)));
    pass(100).await;
    handle.set_plan(parts("100/s", Lost::Abort).plan().unwrap());
    drop(Acquire::new(handle.clone(), key()).await.unwrap());
    work.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_place_is_renewed_after_an_outage_though_its_limiter_was_dropped() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, &parts("2 concurrent lease=30s", Lost::Continue));
    let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
    drop(handle);
    // The renewal is due after 20 s at most.
    pass(9_000).await;
    store.set(Fault::Out);
    pass(11_500).await;
    store.set(Fault::None);
    pass(60_000).await;
    assert!(!place.is_lost());
}

fn call(process: u64, number: u64, units: u32, asks: u32, now: u64) -> Take {
    let requests = vec![(now, 1_u32); asks as usize];
    Take {
        process: process << LANE_BITS | 1,
        number,
        horizon: 100_000,
        holding: Holding {
            units,
            ..Holding::default()
        },
        demand: Demand::new(requests.into_iter()),
        ..Take::default()
    }
}

fn granted(taken: &Taken) -> u32 {
    taken.grants.iter().map(|it| it.requests).sum()
}

#[test]
fn processes_with_another_lease_and_another_rate_count_the_same_places() {
    let old = parts("3 concurrent lease=30s", Lost::Continue)
        .build()
        .unwrap();
    let new = parts("3 concurrent lease=10s + 100/s", Lost::Continue)
        .build()
        .unwrap();
    let mut state = State::new(old.counters());
    let now = 1_000_000_000;
    let mut ask = |policy: &Policy, mut take: Take| {
        if policy.units().len() > 1 {
            take.demand.cost = Costs::default();
            take.demand =
                Demand::new(vec![(now, Costs([1, 1, 0, 0])); take.demand.points.len()].into_iter());
            take.process |= 3;
        }
        state.continue_as(policy.counters());
        granted(&state.take(0, &take, now))
    };
    let mut all = ask(&old, call(1, 1, 0, 1, now));
    all += ask(&new, call(2, 2, 0, 2, now));
    all += ask(&old, call(3, 3, 0, 2, now));
    assert!(all <= 3, "{all} of 3");
}

#[test]
fn a_call_that_arrives_behind_the_last_one_strands_no_place() {
    let policy = parts("1 concurrent lease=30s", Lost::Continue)
        .build()
        .unwrap();
    let mut state = State::new(policy.counters());
    let now = 1_000_000_000;
    // The connection of call 9 stalls, its request is cancelled, and the next call says so.
    let next = Take {
        lost: 9,
        ..call(1, 10, 0, 0, now)
    };
    state.take(0, &next, now);
    state.take(0, &call(1, 9, 0, 1, now), now + 1_000);
    let other = state.take(0, &call(2, 11, 0, 1, now), now + 2_000);
    assert_eq!(granted(&other), 1);
}

#[test]
fn work_goes_on_after_its_runtime_has_shut_down() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, &parts("2 concurrent lease=30s", Lost::Abort));
    let (first, second) = (new_runtime(), new_runtime());
    let place = first
        .block_on(Acquire::new(handle.clone(), key()))
        .unwrap()
        .hold();
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let mut work = Box::pin(place.run(receiver));
    first.block_on(async { timeout(SECOND / 20, &mut work).await.unwrap_err() });
    drop(first);
    second.block_on(async {
        timeout(SECOND / 20, &mut work).await.unwrap_err();
        sender.send(()).unwrap();
        work.await.unwrap().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_place_is_renewed_though_a_call_before_its_departure_was_refused() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(
        &store,
        &parts("5 concurrent lease=3s + 20/s spacing", Lost::Continue),
    );
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
    let store = Remote::new(Duration::from_millis(2));
    let parts = PolicyParts {
        outage: Outage::Local { share: 0.1 },
        ..parts("10 concurrent lease=3s", Lost::Continue)
    };
    let handle = process(&store, &parts);
    drop(Acquire::new(handle.clone(), key()).await.unwrap());
    pass(1_000).await;
    store.set(Fault::Out);
    let high = Acquire::new(handle.clone(), key()).priority(Priority::High);
    let _high = high.await.unwrap().hold();
    pass(5_000).await;
    let second = timeout(SECOND, Acquire::new(handle.clone(), key())).await;
    assert!(second.is_err(), "two of one in progress");
}

#[test]
fn places_are_released_on_a_thread_without_a_runtime() {
    let store = Remote::new(Duration::from_millis(2));
    let parts = parts("2 concurrent lease=30s", Lost::Continue);
    let handle = process(&store, &parts);
    let runtime = new_runtime();
    let place = runtime
        .block_on(Acquire::new(handle.clone(), key()))
        .unwrap()
        .hold();
    std::thread::spawn(move || drop(place)).join().unwrap();
    runtime.block_on(async {
        pass(100).await;
        assert_eq!(held(&store.memory, &parts).await, 0)
    });
    let place = runtime
        .block_on(Acquire::new(handle.clone(), key()))
        .unwrap()
        .hold();
    drop(runtime);
    drop(place);
    let runtime = new_runtime();
    runtime.block_on(async {
        let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
        pass(100).await;
        assert_eq!(held(&store.memory, &parts).await, 1);
        drop(place);
    });
}

#[tokio::test(start_paused = true)]
async fn an_answer_behind_the_end_of_the_lease_does_not_bring_it_back() {
    // The call that renews takes longer than the lease, and the process is not polled at its end.
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, &parts("2 concurrent lease=3s", Lost::Abort));
    let place = Acquire::new(handle.clone(), key()).await.unwrap().hold();
    let mut all = Vec::new();
    Handle::each_queue(&handle.dispatcher, |queue| all.push(queue.clone()));
    let queue = all.remove(0);
    let (now, mut woken) = (Instant::now(), Woken::new());
    {
        let mut queue = queue.lock();
        queue.begin(1 << 40, &Costs([9, 0, 0, 0]), None, |_| 0, &mut woken);
        let later = now + 4 * SECOND;
        let lease = Some(Lease {
            until: later + SECOND,
            renew: later,
        });
        let answer = Answer {
            lease,
            ..Answer::default()
        };
        queue.answer(1 << 40, &answer, later, &mut woken);
    }
    assert!(place.is_lost());
}

#[test]
fn the_runtime_that_polls_the_work_renews_its_place() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, &parts("2 concurrent lease=1s", Lost::Abort));
    let (first, second) = (new_runtime(), new_runtime());
    let place = first
        .block_on(Acquire::new(handle.clone(), key()))
        .unwrap()
        .hold();
    drop(first);
    second.block_on(place.run(pass(2_500))).unwrap();
}

/// Sound: random costs, levels, shares, cancellations, forfeits, tries, lost calls and a change of the quotas.
#[test]
fn random_requests_keep_the_limit_and_leak_nothing() {
    use rand::{Rng, SeedableRng};
    for seed in 0..150_u64 {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let mut random = rand::rngs::StdRng::seed_from_u64(seed);
            let (memory, network) = (MemoryStore::new(), Network::default());
            let quotas =
                ["4 concurrent lease=6s", "4 concurrent lease=6s + 40/s"][seed as usize % 2];
            let first = parts(quotas, Lost::Continue);
            let second = parts("4 concurrent lease=6s + 1000/s + 5000/m", Lost::Continue);
            let mut all = Vec::new();
            for trip in [1, 5, 20] {
                let mut store = Remote::new_on(memory.clone(), Duration::from_millis(trip));
                store.network = random.random_bool(0.7).then(|| network.clone());
                let store = Arc::new(store);
                if random.random_bool(0.4) {
                    store.set(Fault::Loses(random.random_range(1..15)));
                }
                all.push((process(&store, &first), store));
            }
            let now_held = Arc::new(AtomicU64::new(0));
            let most = Arc::new(AtomicU64::new(0));
            let mut tasks = Vec::new();
            for _ in 0..random.random_range(20..150) {
                let handle = all[random.random_range(0..3)].0.clone();
                let arrival = random.random_range(0..6_000);
                let takes = [0, 1, 50, 400][random.random_range(0..4)];
                let cost = [1, 1, 1, 2, 3][random.random_range(0..5)];
                let level =
                    [Priority::High, Priority::Normal, Priority::Low][random.random_range(0..3)];
                let share = random
                    .random_bool(0.2)
                    .then(|| ["a", "b"][random.random_range(0..2)]);
                let action = random.random_range(0..8);
                let cancelled = random.random_range(0..800);
                let (now_held, most) = (now_held.clone(), most.clone());
                tasks.push(tokio::spawn(async move {
                    pass(arrival).await;
                    let mut acquire = Acquire::new(handle, key())
                        .cost_of("concurrent-requests", cost)
                        .priority(level);
                    if let Some(share) = share {
                        acquire = acquire.share(share, 2);
                    }
                    if action == 1 {
                        acquire = acquire.max_wait(Duration::from_millis(cancelled / 8));
                    }
                    if action == 2 {
                        acquire = acquire.max_wait(Duration::ZERO);
                    }
                    let permit = if action == 0 {
                        match timeout(Duration::from_millis(cancelled), acquire).await {
                            Ok(it) => it,
                            Err(_) => return,
                        }
                    } else {
                        acquire.await
                    };
                    let Ok(permit) = permit else { return };
                    if action == 3 {
                        return permit.forfeit();
                    }
                    let place = permit.hold();
                    let now = now_held.fetch_add(cost.into(), Ordering::Relaxed) + u64::from(cost);
                    most.fetch_max(now, Ordering::Relaxed);
                    pass(takes).await;
                    now_held.fetch_sub(cost.into(), Ordering::Relaxed);
                    drop(place);
                }));
            }
            if seed % 3 == 0 {
                for (nth, (handle, _)) in all.iter().enumerate() {
                    let (handle, second, first) = (handle.clone(), second.clone(), first.clone());
                    tasks.push(tokio::spawn(async move {
                        pass(2_000 + 300 * nth as u64).await;
                        handle.set_plan(second.plan().unwrap());
                        pass(2_000).await;
                        handle.set_plan(first.plan().unwrap());
                    }));
                }
            }
            for task in tasks {
                timeout(400 * SECOND, task)
                    .await
                    .unwrap_or_else(|_| panic!("stuck, seed {seed}"))
                    .unwrap();
            }
            let most = most.load(Ordering::Relaxed);
            assert!(most <= 4, "{most} in progress, seed {seed}");
            pass(3_000).await;
            let leaked = held(&memory, &first).await;
            let calls: Vec<_> = all.iter().map(|it| it.1.calls()).collect();
            if leaked > 0 {
                println!("leaked {leaked}, seed {seed}");
            }
            if calls.iter().any(|it| *it > 1_200) {
                println!("calls {calls:?}, seed {seed}");
            }
            pass(10_000).await;
            assert_eq!(held(&memory, &first).await, 0, "seed {seed}");
            assert!(
                all.iter().all(|it| it.0.queues() == 0),
                "queues, seed {seed}"
            );
        });
    }
}

#[tokio::test(start_paused = true)]
async fn one_lost_call_strands_no_places() {
    let store = Remote::new(Duration::from_millis(2));
    let parts = parts("5 concurrent lease=30s", Lost::Continue);
    let handle = process(&store, &parts);
    let mut places = Vec::new();
    for _ in 0..5 {
        places.push(Acquire::new(handle.clone(), key()).await.unwrap().hold());
    }
    pass(1_000).await;
    store.set(Fault::Loses(100));
    drop(places);
    // The call that releases them is lost, as the process sees 100 ms later. The store is there all the time.
    pass(20).await;
    store.set(Fault::None);
    pass(3_000).await;
    assert_eq!(held(&store.memory, &parts).await, 0);
}

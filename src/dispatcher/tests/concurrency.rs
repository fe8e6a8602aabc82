//! Requests in progress, in several processes with round trips and failures, in paused time.

use super::simulation::{Done, Scenario, burst, processes};
use super::*;

#[test]
fn places_are_handed_over_at_once_where_nudges_arrive_and_within_100_ms_where_not() {
    for (is_deaf, least) in [(false, 0.96), (true, 0.85)] {
        let mut scenario = Scenario::new("20 concurrent", processes([1, 5, 20]));
        scenario.is_deaf = is_deaf;
        for process in &mut scenario.processes {
            process.jobs = burst(0, 400, 500);
        }
        let out = scenario.run();
        let (most, used) = (out.most_ever(), out.used(20, 1.0, 25.0));
        assert!(used > least, "{used}");
        assert_eq!((most, out.done.len(), out.leaked), (20, 1_200, 0));
    }
}

#[test]
fn a_process_that_dies_while_it_waits_holds_up_the_others_for_200_ms() {
    let mut scenario = Scenario::new("1 concurrent", processes([1; 3]));
    scenario.processes[1].killed = Some(500);
    // The first one releases its place after the one that is next has died.
    for (process, arrival) in scenario.processes.iter_mut().zip([0, 100, 200]) {
        process.jobs = burst(arrival, 1, 1_000);
    }
    let out = scenario.run();
    let third = out.done.iter().find(|it| it.process == 2).unwrap();
    assert!(third.from < Duration::from_millis(1_210), "{third:?}");
}

#[test]
fn a_process_that_cannot_renew_starts_nothing_and_its_work_goes_on_or_is_dropped() {
    for (lost, most) in [(Lost::Continue, 8), (Lost::Abort, 4)] {
        let mut scenario = Scenario::new("4 concurrent lease=3s", processes([1; 2]));
        scenario.parts.lost = lost;
        scenario.processes[0].stopped = Some((1_000, 20_000));
        scenario.processes[0].jobs = burst(0, 12, 10_000);
        scenario.processes[1].jobs = burst(500, 60, 1_000);
        let out = scenario.run();
        assert_eq!(out.most_ever(), most, "{lost:?}");
        let started = |it: &&Done| it.process == 0 && it.from > SECOND && it.from < 20 * SECOND;
        assert_eq!(out.done.iter().filter(started).count(), 0);
        let aborted = if lost == Lost::Abort { 4 } else { 0 };
        assert_eq!((out.aborted(), out.leaked), (aborted, 0));
    }
}

#[test]
fn places_that_were_lost_are_counted_again_when_the_store_is_back() {
    let mut scenario = Scenario::new("4 concurrent lease=2s", processes([1; 2]));
    scenario.processes[0].stopped = Some((1_000, 6_000));
    scenario.processes[0].jobs = burst(0, 4, 12_000);
    scenario.processes[1].jobs = burst(3_500, 40, 500);
    let out = scenario.run();
    assert_eq!(out.most(Duration::ZERO, 6 * SECOND), 8);
    // From then on, nothing departs while four are in progress.
    assert_eq!(out.most(8 * SECOND, 12 * SECOND), 4);
    assert_eq!((out.done.len(), out.leaked), (44, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_place_until_its_bound_and_no_longer() {
    let memory = MemoryStore::new();
    let store = || Remote::on(memory.clone(), SECOND / 500);
    let new = || process(&store(), policy("1 concurrent"));
    let (first, second) = (new(), new());
    let place = Acquire::new(first, key()).await.unwrap().hold();
    for millis in [20, 60, 300] {
        let start = Instant::now();
        let acquire = Acquire::new(second.clone(), key());
        let refused = acquire.max_wait(Duration::from_millis(millis)).await;
        assert!(refused.unwrap_err().is_limited());
        assert_since(start, millis..millis + 10);
    }
    drop(place);
}

#[test]
fn places_that_are_released_in_an_outage_are_free_when_it_ends() {
    for outage in [Outage::Deny, Outage::Local { share: 0.5 }] {
        let mut scenario = Scenario::new("3 concurrent lease=20s", processes([1; 2]));
        scenario.parts.outage = outage;
        scenario.processes[0].stopped = Some((1_000, 4_000));
        // One request fails in the outage, so that the store is known to be out when the others end.
        scenario.processes[0].jobs = burst(0, 3, 2_500);
        scenario.processes[0].jobs.append(&mut burst(1_500, 1, 1));
        scenario.processes[1].jobs = burst(500, 3, 1_000);
        let out = scenario.run();
        let last = out.done.iter().filter(|it| it.process == 1);
        let last = last.map(|it| it.from).max().unwrap();
        assert!(last < 6 * SECOND, "{outage:?}: {last:?}");
        assert_eq!((out.most_ever(), out.leaked), (3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_with_many_keys_renews_them_in_few_calls() {
    let store = Remote::new(SECOND / 1_000);
    let handle = process(&store, policy("9 concurrent lease=6s"));
    let mut places = Vec::new();
    for nth in 0..60 {
        pass(37).await;
        let permit = Acquire::new(handle.clone(), Key::new(format!("{nth}"))).await;
        places.push(permit.unwrap().hold());
    }
    let before = store.calls();
    pass(60_000).await;
    // Each key is renewed after two thirds of its lease, and those in between at the same times.
    let calls = store.calls() - before;
    assert!((10..=32).contains(&calls), "{calls}");
    assert!(places.iter().all(|place| !place.is_lost()));
}

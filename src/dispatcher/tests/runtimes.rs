//! Runtimes that shut down, that have no timer, or that have several threads.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use super::*;

/// Longer than any of these tests takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

fn returns(function: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        function();
        done.send(()).unwrap();
    });
    if is_done.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("it does not return");
    }
    thread.join().unwrap();
}

#[test]
fn a_runtime_with_waiting_requests_shuts_down() {
    returns(|| {
        for _ in 0..20 {
            let (_, handle) = served(policy("1/100s"));
            new_runtime().block_on(async {
                (0..20).for_each(|_| drop(spawn(&handle, 1)));
                pass(20).await;
            });
        }
    });
}

/// The runtime drops each call that is spawned during its shutdown, so the call is due again at once.
#[test]
fn a_runtime_shuts_down_while_its_task_sends_a_call() {
    returns(|| {
        let (store, handle) = served(policy("1/s"));
        let (runtime, mut waiting) = (threads(1), None);
        runtime.block_on(async {
            depart(&handle, 1).await.unwrap();
            waiting = Some(handle.wait(1, None));
            tokio::time::sleep(SECOND / 10).await;
        });
        store.set(Fault::Blocks);
        while *store.fault.lock() == Fault::Blocks {
            thread::sleep(Duration::from_millis(1));
        }
        drop(runtime);
        drop(waiting);
    });
}

#[test]
fn a_runtime_without_a_timer_is_refused_at_once() {
    returns(|| {
        let (_, handle) = served(policy("1/s"));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let joined = runtime.block_on(async {
            let join = || handle.wait(1, None).map(drop);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(join))
        });
        assert!(!matches!(joined, Ok(Ok(()))), "it cannot wait");
        assert!(handle.dispatcher.schedule.lock().tasks.is_empty());
        // Other runtimes are served.
        new_runtime().block_on(async { depart(&handle, 1).await.unwrap() });
    });
}

#[test]
fn a_request_goes_on_and_its_shard_is_probed_after_their_runtime_has_shut_down() {
    returns(|| {
        let (store, handle) = served(policy("10/s"));
        store.set(Fault::Out);
        let (first, second) = (new_runtime(), new_runtime());
        let entered = first.enter();
        let mut waiting = Box::pin(handle.wait(1, None).unwrap());
        drop(entered);
        for runtime in [&first, &second] {
            runtime.block_on(async { timeout(SECOND / 10, &mut waiting).await.unwrap_err() });
        }
        drop(first);
        store.set(Fault::None);
        // Without a probe, it fails after five seconds.
        second.block_on(waiting).unwrap();
    });
}

/// The runtime that has sent a call, or was about to, is not polled any more. Its request is cancelled, or misses its turn.
#[test]
fn a_runtime_that_is_not_polled_holds_up_no_other() {
    returns(|| {
        for (round_trip, is_cancelled) in [(1, true), (100, true), (2, false)] {
            let store = Remote::new(Duration::from_millis(round_trip));
            // On a busy machine, a shorter wait would be over before the runtime stops.
            let handle = process(&store, policy("2/500ms"));
            let (stopped, other) = (new_runtime(), new_runtime());
            let join = || handle.wait(2, None);
            let mut waiting = None;
            stopped.block_on(async {
                depart(&handle, 1).await.unwrap();
                let waiting = waiting.insert(Box::pin(join().unwrap()));
                assert!(timeout(Duration::from_millis(20), waiting).await.is_err());
            });
            let waiting = waiting.filter(|_| !is_cancelled);
            let start = Instant::now();
            other.block_on(async { depart(&handle, 1).await.unwrap() });
            // A call is given up after five seconds.
            assert_since(start, 0..4_000);
            drop((stopped, waiting));
        }
    });
}

/// The first task's runtime is not polled any more: the task of another runtime does not watch it for ever.
#[test]
fn the_task_that_watches_an_idle_one_ends() {
    returns(|| {
        let (_, handle) = served(policy("10/s"));
        let (idle, busy) = (new_runtime(), new_runtime());
        idle.block_on(async { depart(&handle, 1).await.unwrap() });
        busy.block_on(async {
            depart(&handle, 1).await.unwrap();
            let id = tokio::runtime::Handle::current().id();
            let is_watching = || handle.dispatcher.schedule.lock().tasks.contains(&id);
            assert!(is_watching());
            while is_watching() {
                tokio::time::sleep(SECOND / 10).await;
            }
        });
    });
}

/// A request gets a permit, and ends in some way.
async fn end(acquire: Acquire, way: u32, moment: Duration) {
    match way {
        0 => _ = acquire.max_wait(moment).await,
        1 => {
            _ = acquire
                .run(async || resume_unwind(Box::new("in the work")))
                .await
        }
        2 => _ = timeout(moment, acquire.run(pending::<()>)).await,
        3 => acquire.await.unwrap().forfeit(),
        4 => drop(acquire.await.unwrap().into_charge()),
        5 => {
            let _place = acquire.await.unwrap().hold();
            tokio::time::sleep(moment).await;
            resume_unwind(Box::new("with a place"));
        }
        6 => {
            let place = acquire.await.unwrap().hold();
            thread::spawn(move || drop(place)).join().unwrap();
        }
        _ => {
            let work = tokio::time::sleep(moment);
            _ = acquire.await.unwrap().hold().run(work).await;
        }
    }
}

/// Requests of three runtimes end in all ways at once. One of the runtimes ends before them.
#[test]
fn no_request_is_forgotten_and_no_place_is_left_on_several_runtimes() {
    returns(|| {
        let runtimes = [threads(2), threads(2)];
        let (ends, begun) = (threads(2), std::time::Instant::now());
        // The lease ends long after the test.
        let handles = ["50 concurrent lease=10min", "20/20ms"].map(|quota| {
            let store = Remote::new(Duration::from_millis(1));
            [process(&store, policy(quota)), embedded(quota)]
        });
        let mut tasks = Vec::new();
        for nth in 0..9_000_u32 {
            let handle = &handles.as_flattened()[nth as usize % 4];
            let acquire = Acquire::new(handle.clone(), Key::new(format!("key {}", nth / 4 % 3)));
            let moment = Duration::from_micros(u64::from(nth) * 7 % 3_000);
            // A third of them is cancelled.
            let until = if nth % 3 == 0 { 3 * moment } else { LONG };
            let ending = end(acquire, nth / 4 % 8, moment);
            let task = async move { timeout(until, ending).await };
            match runtimes.get(nth as usize / 7 % 3) {
                Some(runtime) => tasks.push(runtime.spawn(task)),
                None => drop(ends.spawn(task)),
            }
            if nth % 50 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        ends.shutdown_background();
        runtimes[0].block_on(async {
            for task in tasks {
                // Some of them panic.
                let _ = task.await;
            }
            let held = async |handle: &Arc<Handle>, key| {
                let look = Acquire::new(handle.clone(), Key::new(format!("key {key}"))).peek();
                look.await.unwrap().places().map_or(0, |it| it.held)
            };
            for handle in handles.as_flattened() {
                for key in 0..3 {
                    while held(handle, key).await > 0 {
                        assert!(begun.elapsed() < LONG, "a place is left");
                        pass(10).await;
                    }
                }
                while handle.key_count() > 0 {
                    assert!(begun.elapsed() < LONG, "a queue is left");
                    pass(10).await;
                }
            }
        });
    });
}

#[test]
fn runtimes_that_take_turns_have_one_task_each() {
    returns(|| {
        let store = Remote::new(Duration::from_millis(1));
        let handle = process(&store, policy("1000/s"));
        let runtimes = [new_runtime(), new_runtime()];
        for round in 0..40 {
            runtimes[round % 2].block_on(async {
                depart(&handle, 1).await.unwrap();
                pass(5).await;
            });
        }
        let tasks = runtimes.iter().map(|it| it.metrics().num_alive_tasks());
        let tasks: usize = tasks.sum();
        // Calls have tasks, too.
        assert!(tasks <= 4, "{tasks}");
    });
}

#[test]
fn a_request_that_waits_fails_outside_of_a_runtime() {
    let runtime = new_runtime();
    let waiting = runtime.block_on(async {
        let (_, handle) = served(policy("1/h"));
        depart(&handle, 1).await.unwrap();
        handle.wait(1, None)
    });
    let mut waiting = Box::pin(waiting.unwrap());
    let timed_out = runtime.block_on(async { timeout(SECOND / 10, &mut waiting).await.is_err() });
    let failed = waiting.now_or_never().expect("at once");
    assert!(timed_out, "it waits");
    assert!(matches!(failed, Err(Refusal::Store(_))), "{failed:?}");
}

#[test]
fn corrections_from_a_thread_without_a_runtime_are_sent_by_one_that_was_used() {
    for ends_before in [false, true] {
        let (store, handle) = served(policy("10/h"));
        let begun = std::time::Instant::now();
        let wait_until = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(begun.elapsed() < LONG);
                thread::sleep(Duration::from_millis(1));
            }
        };
        let is_ended = || Arc::strong_count(&handle.dispatcher) == 1;
        let runtime = threads(1);
        let granted = runtime.block_on(async { handle.wait(1, None).unwrap().await.unwrap() });
        if ends_before {
            wait_until(&is_ended);
        }
        let other = threads(1);
        other.block_on(async { depart(&handle, 1).await.unwrap() });
        drop(other);
        // The task of the dispatcher ends.
        wait_until(&is_ended);
        let calls = store.calls();
        handle.forfeit(&key(), granted);
        wait_until(&|| store.calls() > calls);
    }
}

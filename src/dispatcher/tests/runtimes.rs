//! Runtimes that shut down, that have no timer, or that have several threads.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Longer than any of these tests takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Fails if a function does not return.
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
            let (_, handle) = served(plan("1/100s"));
            let runtime = new_runtime();
            runtime.block_on(async {
                for _ in 0..20 {
                    let joined = handle.wait(&key(), 1, Instant::now(), None);
                    tokio::spawn(joined.unwrap());
                }
                pass(20).await;
            });
            drop(runtime);
        }
    });
}

/// The runtime drops each call that is spawned during its shutdown, so the call is due again at once.
#[test]
fn a_runtime_shuts_down_while_its_task_sends_a_call() {
    returns(|| {
        let (store, handle) = served(plan("1/s"));
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let mut waiting = None;
        runtime.block_on(async {
            depart(&handle, 1).await.unwrap();
            waiting = Some(handle.wait(&key(), 1, Instant::now(), None));
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
        let (_, handle) = served(plan("1/s"));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let joined = runtime.block_on(async {
            let join = || handle.wait(&key(), 1, Instant::now(), None).map(drop);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(join))
        });
        assert!(!matches!(joined, Ok(Ok(()))), "it cannot wait");
        assert!(handle.dispatcher.schedule.lock().tasks.is_empty());
        // Other runtimes are served.
        new_runtime().block_on(async { depart(&handle, 1).await.unwrap() });
    });
}

#[test]
fn a_shard_is_probed_after_the_runtime_that_probed_it_has_shut_down() {
    returns(|| {
        let (store, handle) = served(plan("10/s"));
        store.set(Fault::Out);
        let (first, second) = (new_runtime(), new_runtime());
        first.block_on(async { timeout(SECOND / 10, depart(&handle, 1)).await.unwrap_err() });
        let join = || handle.wait(&key(), 1, Instant::now(), None);
        let entered = second.enter();
        let mut waiting = Box::pin(join().unwrap());
        drop(entered);
        second.block_on(async { timeout(SECOND / 10, &mut waiting).await.unwrap_err() });
        drop(first);
        store.set(Fault::None);
        // Without a probe, it fails after five seconds.
        second.block_on(waiting).unwrap();
    });
}

/// The runtime that has sent a call, or was about to, is not polled any more.
#[test]
fn a_runtime_that_is_not_polled_holds_up_no_other() {
    returns(|| {
        for round_trip in [1, 100] {
            let store = Remote::new(Duration::from_millis(round_trip));
            let handle = process(&store, plan("2/100ms"));
            let (stopped, other) = (new_runtime(), new_runtime());
            let join = || handle.wait(&key(), 2, Instant::now(), None);
            let mut waiting = None;
            stopped.block_on(async {
                depart(&handle, 1).await.unwrap();
                let waiting = waiting.insert(Box::pin(join().unwrap()));
                let waits = timeout(Duration::from_millis(20), waiting).await;
                assert!(waits.is_err());
            });
            drop(waiting);
            let start = Instant::now();
            other.block_on(async { depart(&handle, 1).await.unwrap() });
            assert_since(start, 0..2_000);
            drop(stopped);
        }
    });
}

/// The first task's runtime is not polled any more: the task of another runtime does not watch it for ever.
#[test]
fn the_task_that_watches_an_idle_one_ends() {
    returns(|| {
        let (_, handle) = served(plan("10/s"));
        let (idle, busy) = (new_runtime(), new_runtime());
        idle.block_on(async { depart(&handle, 1).await.unwrap() });
        busy.block_on(async {
            depart(&handle, 1).await.unwrap();
            let id = Runtime::current().id();
            let is_watching = || handle.dispatcher.schedule.lock().tasks.contains(&id);
            assert!(is_watching());
            while is_watching() {
                tokio::time::sleep(SECOND / 10).await;
            }
        });
    });
}

/// Requests join, are cancelled and depart on all threads at once: none is forgotten.
#[test]
fn no_request_is_forgotten_on_several_threads() {
    returns(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(4).enable_all().build().unwrap();
        let store = Remote::new(Duration::from_millis(1));
        let handles = [process(&store, plan("20/20ms")), embedded("20/20ms")];
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for nth in 0..4_000_u32 {
                let handle = handles[nth as usize % 2].clone();
                tasks.push(tokio::spawn(async move {
                    let key = Key::new(format!("key {}", nth % 7));
                    let waiting = handle.wait(&key, 1, Instant::now(), None).unwrap();
                    if nth % 3 == 0 {
                        let until = Duration::from_micros(u64::from(nth) * 7 % 20_000);
                        if let Ok(departed) = timeout(until, waiting).await {
                            handle.forfeit(&key, departed.unwrap());
                        }
                    } else {
                        waiting.await.unwrap();
                    }
                }));
                if nth % 50 == 0 {
                    pass(1).await;
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn runtimes_that_take_turns_have_one_task_each() {
    returns(|| {
        let store = Remote::new(Duration::from_millis(1));
        let handle = process(&store, plan("1000/s"));
        let runtimes = [new_runtime(), new_runtime()];
        for round in 0..40 {
            runtimes[round % 2].block_on(async {
                depart(&handle, 1).await.unwrap();
                pass(5).await;
            });
        }
        let tasks = runtimes
            .iter()
            .map(|it| it.metrics().num_alive_tasks())
            .sum::<usize>();
        // Calls have tasks, too.
        assert!(tasks <= 4, "{tasks}");
    });
}

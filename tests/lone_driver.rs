//! What happens to a line while its only waiter drives it, or when who drove it is gone: whoever is concerned
//! is served, though the others look no more.

#[path = "support/pass_on.rs"]
mod pass_on;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::poll;
use pass_on::pass_on;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tower_throttle::store::{MemoryStore, Release, Reply, Reserve, Reserved, Store};
use tower_throttle::{Acquire, Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

type Deed = Box<dyn FnOnce() + Send>;

/// A store in whose calls something else is done.
#[derive(Clone, Default)]
struct Busy {
    store: MemoryStore,
    /// What the next call does when it is made.
    first: Arc<Mutex<Option<Deed>>>,
    /// What it does before it answers.
    last: Arc<Mutex<Option<Deed>>>,
}

impl Store for Busy {
    pass_on!(store: peek, heed, reset, listen, is_listening);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        do_if_told(&self.first);
        let (busy, answer) = (self.clone(), self.store.reserve(reserve));
        Reply::pending(async move {
            do_if_told(&busy.last);
            answer.await
        })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let answer = self.store.release(release);
        Reply::pending(async move {
            yield_now().await;
            answer.await
        })
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Busy").finish_non_exhaustive()
    }
}

fn do_if_told(told: &Mutex<Option<Deed>>) {
    let deed = told.lock().expect("no panic").take();
    if let Some(deed) = deed {
        deed();
    }
}

fn limiter(store: impl Store, window: Duration) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(1, window));
    let builder = builder.guard(window / 20).store(store);
    builder.build().expect("a valid policy")
}

async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

async fn in_time(
    waiter: impl Future<Output = Result<tower_throttle::Permit, tower_throttle::Error>>,
) {
    let permit = timeout(PATIENCE, waiter).await;
    permit.expect("in time").expect("a permit");
}

async fn until_closed(limiter: &Limiter) {
    let closed = async {
        while limiter.lines() > 0 {
            sleep(SECOND / 100).await;
        }
    };
    timeout(PATIENCE, closed).await.expect("no line is left");
}

/// Wakes one who looks only when told.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[tokio::test(start_paused = true)]
async fn who_joins_while_a_lone_waiter_drives_is_served_though_that_one_looks_no_more() {
    for with_the_answer in [false, true] {
        let store = Busy::default();
        let limiter = limiter(store.clone(), SECOND);
        limiter.acquire("a").await.expect("a permit");
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let second = Arc::new(Mutex::new(Box::pin(limiter.acquire("a"))));
        let look = {
            let second = second.clone();
            move || {
                let mut second = second.lock().expect("no panic");
                second.as_mut().poll(&mut Context::from_waker(&waker))
            }
        };
        let told = if with_the_answer {
            &store.last
        } else {
            &store.first
        };
        let join = look.clone();
        *told.lock().expect("no panic") = Some(Box::new(move || assert!(join().is_pending())));
        let alone = waiter(&limiter).await;
        let called = async {
            loop {
                bell.0.notified().await;
                if let Poll::Ready(permit) = look() {
                    break permit;
                }
            }
        };
        in_time(called).await;
        in_time(alone).await;
        until_closed(&limiter).await;
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

#[test]
fn who_joins_a_line_whose_driver_is_gone_is_served_though_the_others_look_no_more() {
    for ahead in [1, 2, 5] {
        let limiter = limiter(MemoryStore::new(), SECOND / 10);
        let gone = runtime();
        let waiting = gone.block_on(async {
            limiter.acquire("a").await.expect("a permit");
            let mut waiting = Vec::new();
            for _ in 0..ahead {
                waiting.push(waiter(&limiter).await);
            }
            waiting
        });
        drop(gone);
        runtime().block_on(async {
            in_time(limiter.acquire("a")).await;
            for waiter in waiting {
                in_time(waiter).await;
            }
            until_closed(&limiter).await;
        });
    }
}

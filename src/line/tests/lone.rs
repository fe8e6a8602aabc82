//! A lone waiter whose slot passes between its driver's look and its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::epoch::{Epoch, Epochs};
use crate::key::Key;
use crate::line::{Held, Joined, Newcomer, hold};
use crate::policy::PolicyParts;
use crate::quota::Quota;
use crate::store::{MemoryStore, Outcome, Reserve};
use crate::telemetry::Settings;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn epoch() -> Arc<Epoch> {
    let parts = PolicyParts {
        quotas: [Quota::new(1, WINDOW)].into_iter().collect(),
        guard: Some(GUARD),
        ..PolicyParts::default()
    };
    let epochs = Epochs::new(parts, Arc::new(MemoryStore::new()), 0, Settings::default());
    epochs.unwrap().current()
}

/// A slot of the present.
fn slot(epoch: &Epoch, key: &Key) -> Held {
    let reply = epoch.store.reserve(&Reserve::new(key, &epoch.policy));
    let reserved = { reply }.take_ready().unwrap().unwrap();
    let Outcome::Granted(slot) = reserved.outcomes[0].clone() else {
        panic!("refused");
    };
    let now = Instant::now();
    let call = Call {
        life: 0,
        sent: now,
        received: now,
        guard: GUARD,
        buffer: Duration::ZERO,
        offset: epoch
            .clock
            .observe(now, now, reserved.now, reserved.clock)
            .offset,
    };
    hold(slot, reserved.now, 0, WINDOW, call)
}

#[tokio::test(start_paused = true)]
async fn a_lone_waiter_whose_slot_has_passed_is_told_to_drive_once_more() {
    let (epoch, key) = (epoch(), Key::from("a"));
    let newcomer = Newcomer {
        cost: 1,
        bound: Bound::Unlimited,
        arrival: None,
        max_waiting: 1,
    };
    let joined = epoch.lines.join(&epoch, &key, newcomer, Waker::noop());
    let Joined { line, id, is_alone } = joined.unwrap();
    assert!(is_alone);
    let now = Instant::now();
    {
        let (queue, mut wakes) = (&mut line.state.lock().queue, Wakes::new());
        queue.give(slot(&epoch, &key), now, &mut wakes);
        queue.advance(now, &mut wakes);
        // Nothing is left for the driver to wait for.
        queue.advance(now + GUARD / 2, &mut wakes);
        assert_eq!(queue.plan(), None);
    }
    tokio::time::advance(GUARD * 2).await;
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let cx = &mut Context::from_waker(&waker);
    assert!(line.poll(id, cx).is_pending());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    // What has passed goes back, and comes again.
    let Poll::Ready((Ok(held), _)) = line.poll(id, cx) else {
        panic!("it has to wait");
    };
    assert!(held.due <= Instant::now() && Instant::now() < held.expires);
    assert_eq!(epoch.lines.len(), 0);
}

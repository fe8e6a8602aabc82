//! Who listens, if a store tells anybody.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::bench::Bench;
use super::policies::{log, policy};
use super::{LONG, PAUSE, any_wait, granted, require};
use crate::algorithm::micros;
use crate::key::Key;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::store::{Listen, Notice, Reserved, Store, Word};

/// Writes down what it hears.
#[derive(Default)]
struct Clerk(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    notices: Vec<(String, Key, Notice)>,
    /// Whether anything may have been said besides.
    gap: bool,
}

impl Listen for Clerk {
    fn hear(&self, policy: &str, key: &Key, notice: Notice) {
        let heard = (policy.to_owned(), key.clone(), notice);
        self.0.lock().notices.push(heard);
    }

    fn gap(&self) {
        self.0.lock().gap = true;
    }
}

impl Clerk {
    fn listens<S: Store>(bench: &Bench<S>) -> Arc<Self> {
        let clerk = Arc::<Self>::default();
        let weak = Arc::downgrade(&clerk);
        bench.store.listen(weak);
        clerk
    }

    fn forget(&self) {
        *self.0.lock() = Heard::default();
    }

    /// Whether it was told something of this key by which the same of these slots are void. A gap says so
    /// too, as it makes everybody look.
    fn knows(&self, key: &Key, policy: &Policy, held: &Reserved, said: Notice) -> bool {
        let voids = |notice: &Notice| {
            let at = granted(held).into_iter().map(|slot| slot.at);
            at.map(|at| notice.voids(at, held.now()))
                .collect::<Vec<_>>()
        };
        let heard = self.0.lock();
        let is_it = |(id, of, notice): &(String, Key, Notice)| {
            let same = notice.paused == said.paused && voids(notice) == voids(&said);
            id == policy.id() && of == key && same
        };
        heard.gap || heard.notices.iter().any(is_it)
    }
}

/// Each of them, of each word that concerns slots which are held: of which key, under which policy, and which
/// slots are void. It is no matter that the same store was told.
pub(super) async fn whoever_listens_is_told<S: Store>(bench: &Bench<S>) {
    if !bench.store.is_listening() {
        return;
    }
    let clerks = [Clerk::listens(bench), Clerk::listens(bench)];
    let joint = policy(&[Quota::new(1, LONG), Quota::new(5, LONG * 10)]);
    for key in ["key", "other\0 {key}"].map(|name| bench.key(name)) {
        for policy in [&log(1), &joint] {
            let held = bench.ask(&key, policy, &[any_wait(4)]).await;
            bench.wait_until_after(held.now()).await;
            let words = [
                Word::Allow {
                    left: 1,
                    span: micros(PAUSE),
                },
                Word::Pause {
                    span: micros(LONG + PAUSE),
                    departed: u64::MAX,
                },
                Word::Resume,
            ];
            for word in words {
                clerks.iter().for_each(|clerk| clerk.forget());
                let said = bench.heed(&key, policy, word).await;
                for clerk in &clerks {
                    let knows = || clerk.knows(&key, policy, &held, said);
                    // From when it does not listen on, nobody relies on it.
                    let is_told = || knows() || !bench.store.is_listening();
                    let told = bench.comes_true(is_told).await;
                    require!(
                        bench,
                        told,
                        "of {word:?} on {key:?} under {}, it told {:?} instead of {said:?}",
                        policy.id(),
                        clerk.0.lock().notices
                    );
                }
            }
        }
    }
}

/// It is not kept alive, and others are told.
pub(super) async fn a_listener_may_leave<S: Store>(bench: &Bench<S>) {
    if !bench.store.is_listening() {
        return;
    }
    let (leaves, stays) = (Clerk::listens(bench), Clerk::listens(bench));
    let (key, policy) = (bench.key("key"), log(1));
    let held = bench.ask(&key, &policy, &[any_wait(2)]).await;
    bench.wait_until_after(held.now()).await;
    bench.pause(&key, &policy, PAUSE).await;

    let gone: Weak<Clerk> = Arc::downgrade(&leaves);
    drop(leaves);
    // It may be told something just now.
    let is_gone = bench.comes_true(|| gone.strong_count() == 0).await;
    require!(bench, is_gone, "a listener is kept alive");
    stays.forget();
    let said = bench.heed(&key, &policy, Word::Resume).await;
    let knows = || stays.knows(&key, &policy, &held, said);
    let is_told = || knows() || !bench.store.is_listening();
    let told = bench.comes_true(is_told).await;
    require!(bench, told, "with one gone, another is not told");
}

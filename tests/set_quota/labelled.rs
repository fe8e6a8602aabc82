//! Which quotas an answer came from.

use std::sync::Weak;

use futures_util::FutureExt as _;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{Listen, Notice, Release, Reply, Reserve, Reserved, Store, Word};

/// Says by `Permit::reset` which quota granted a permit: its window.
#[derive(Debug)]
pub(crate) struct Labelled<S>(pub(crate) S);

impl<S: Store> Store for Labelled<S> {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let label = reserve.policy.quotas()[0].window();
        let reply = self.0.reserve(reserve);
        let answer = async move {
            let it = reply.await?;
            let outcomes = it.outcomes().to_vec();
            Ok(Reserved::new(it.now(), outcomes, it.remaining(), label))
        };
        if self.is_local() {
            Reply::ready(answer.now_or_never().expect("an answer at once"))
        } else {
            Reply::pending(answer)
        }
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.0.release(release)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.0.peek(reserve)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.0.reset(key, policy)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.0.heed(key, policy, word)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.listen(listener);
    }

    fn is_listening(&self) -> bool {
        self.0.is_listening()
    }

    fn is_local(&self) -> bool {
        self.0.is_local()
    }
}

//! Which quotas an answer came from.

use futures_util::FutureExt as _;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{Release, Reply, Reserve, Reserved, Store};

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

    fn is_local(&self) -> bool {
        self.0.is_local()
    }
}

//! Which quotas an answer came from.

use futures_util::FutureExt as _;
use tower_throttle::store::{Reply, Reserve, Reserved, Store};

use crate::support::pass_on::pass_on;

/// Says by `Permit::reset` which quota granted a permit: its window.
#[derive(Debug)]
pub(crate) struct Labelled<S>(pub(crate) S);

impl<S: Store> Store for Labelled<S> {
    pass_on!(0: release, peek, heed, reset, listen, is_listening, told_until, check, part, is_local);

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
}

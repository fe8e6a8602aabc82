//! Wakers that say whose they are.

use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};

/// The most requests of a process.
const MOST: usize = 8;

static BELLS: LazyLock<[Waker; MOST]> = LazyLock::new(|| std::array::from_fn(|_| bell()));

struct Bell {
    /// So that no two lie in the same place.
    _place: u8,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {}
}

fn bell() -> Waker {
    Waker::from(Arc::new(Bell { _place: 0 }))
}

/// The waker of a process's request.
pub(super) fn of(request: usize) -> &'static Waker {
    &BELLS[request]
}

/// Which request it wakes.
pub(super) fn whose(waker: &Waker) -> usize {
    let whose = BELLS.iter().position(|bell| bell.will_wake(waker));
    whose.expect("a bell")
}

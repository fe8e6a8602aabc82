//! What has come about, in how many steps: a model in which nothing does proves nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::listed::listed;

/// Counts of [`Event`]s; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen(Arc<[AtomicU64; Event::ALL.len()]>);

listed! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Event {
        /// A request departs.
        Departs,
        /// A slot that was given back is handed out again.
        IsHandedOutAgain,
        /// A slot expires before its request looks, or a permit before it is used.
        Expires,
        /// A slot is lost, with its process or with a call.
        IsLost,
        /// A slot that is held, or comes, lies in a pause.
        IsVoid,
        /// A request without a slot waits for a store that is out, until that gives a sign of life.
        OutlastsAnOutage,
    }
}

impl Seen {
    pub(super) fn note(&self, event: Event) {
        self.0[event.place()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, event: Event) -> u64 {
        self.0[event.place()].load(Ordering::Relaxed)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Event::ALL.map(|event| format!("{event:?} {}", self.count(event)));
        f.write_str(&counts.join(", "))
    }
}

//! Who hears of what is said of keys: [`Listen`].

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Notice;
use crate::key::Key;

/// Hears what is said of keys that others may hold slots of; see [`Store::listen`](super::Store::listen).
pub trait Listen: Send + Sync {
    /// Something was said of this key under the policy of this [id](crate::Policy::id). It may be told
    /// twice.
    fn hear(&self, policy: &str, key: &Key, notice: Notice);

    /// Something may have been said of any key.
    fn gap(&self);

    /// Whether anybody waits who has to hear at once. Default: `true`.
    fn is_waiting(&self) -> bool {
        true
    }
}

/// The listeners of a store.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<Weak<dyn Listen>>>);

impl Listeners {
    pub(crate) fn add(&self, listener: Weak<dyn Listen>) {
        let mut listeners = self.0.lock();
        listeners.retain(|it| it.strong_count() > 0);
        listeners.push(listener);
    }

    pub(crate) fn hear(&self, policy: &str, key: &Key, notice: Notice) {
        self.each(|listener| listener.hear(policy, key, notice));
    }

    #[cfg_attr(
        not(any(feature = "redis", feature = "test-util")),
        expect(dead_code, reason = "only a server is out of sight")
    )]
    pub(crate) fn gap(&self) {
        self.each(|listener| listener.gap());
    }

    #[cfg_attr(
        not(any(feature = "redis", feature = "test-util")),
        expect(dead_code, reason = "only a server is out of sight")
    )]
    pub(crate) fn wait(&self) -> bool {
        self.live().iter().any(|it| it.is_waiting())
    }

    fn each(&self, tell: impl Fn(&dyn Listen)) {
        self.live().iter().for_each(|it| tell(&**it));
    }

    /// For use without the lock, as a listener may be told something itself.
    fn live(&self) -> Vec<Arc<dyn Listen>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listeners")
            .field(&self.0.lock().len())
            .finish()
    }
}

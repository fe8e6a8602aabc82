//! How a faulty store tells those who listen.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tower_throttle::key::Key;
use tower_throttle::store::{Listen, Notice};

use super::Fault;

/// From here on it is no time.
const END_OF_TIME: u64 = 1 << 52;

/// Stands between the wrapped store and those who listen.
pub(super) struct Relays {
    fault: Fault,
    relays: Mutex<Vec<Arc<Relay>>>,
    kept: Mutex<Vec<Arc<dyn Listen>>>,
    is_silent: Arc<AtomicBool>,
}

struct Relay {
    fault: Fault,
    listener: Weak<dyn Listen>,
    is_silent: Arc<AtomicBool>,
}

impl Relays {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            fault,
            relays: Mutex::default(),
            kept: Mutex::default(),
            is_silent: Arc::default(),
        }
    }

    /// Who listens in place of this one.
    pub(super) fn add(&self, listener: Weak<dyn Listen>) -> Weak<dyn Listen> {
        let mut relays = self.relays.lock().expect("no panic while holding it");
        if self.fault == Fault::KeepsListenersAlive {
            let mut kept = self.kept.lock().expect("no panic while holding it");
            kept.extend(listener.upgrade());
        }
        let is_second = self.fault == Fault::TellsOneListenerOnly && !relays.is_empty();
        let relay = Arc::new(Relay {
            fault: if is_second {
                Fault::TellsNobody
            } else {
                self.fault
            },
            listener,
            is_silent: self.is_silent.clone(),
        });
        relays.push(relay.clone());
        let relay: Arc<dyn Listen> = relay;
        Arc::downgrade(&relay)
    }

    /// Before anything is told.
    pub(super) fn prepare(&self) {
        let relays = self.relays.lock().expect("no panic while holding it");
        let is_gone = |relay: &Arc<Relay>| relay.listener.strong_count() == 0;
        if self.fault == Fault::StopsAtAListenerThatIsGone && relays.iter().any(is_gone) {
            self.is_silent.store(true, Ordering::Relaxed);
        }
    }
}

impl Listen for Relay {
    fn hear(&self, policy: &str, key: &Key, notice: Notice) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        let is_end = notice.until > END_OF_TIME;
        match self.fault {
            Fault::TellsNobody => {}
            Fault::TellsOfPausesOnly if notice.paused == 0 || is_end => {}
            Fault::TellsNobodyOfResuming if is_end => {}
            Fault::TellsOfGapsOnly => listener.gap(),
            Fault::TellsTheWrongKey => listener.hear(policy, &format!("{key}x").into(), notice),
            Fault::TellsKeysUpToAZero => {
                let start = key.as_str().split('\0').next();
                listener.hear(policy, &start.unwrap_or_default().into(), notice);
            }
            Fault::TellsTheWrongPolicy => listener.hear("1/s", key, notice),
            Fault::TellsAnEmptyNotice => listener.hear(policy, key, Notice::default()),
            Fault::TellsOfNoPause => listener.hear(
                policy,
                key,
                Notice {
                    paused: 0,
                    ..notice
                },
            ),
            _ => listener.hear(policy, key, notice),
        }
    }

    fn gap(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.gap();
        }
    }
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relays").finish_non_exhaustive()
    }
}

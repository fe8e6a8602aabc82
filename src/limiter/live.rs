//! The rules of a limiter while they change: [`Live`].

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::dispatcher::{Dispatcher, Handle};
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::rules::{Reloaded, Rules};
use crate::store::MemoryStore;
use crate::telemetry::{self, Settings};

/// The rules of a limiter; its clones share them.
pub(crate) struct Live {
    dispatcher: Arc<Dispatcher>,
    denials: usize,
    telemetry: Settings,
    now: ArcSwap<Now>,
    /// Serves the requests of a last rule that is exempt.
    unlimited: Arc<Handle>,
    reload: Mutex<()>,
}

/// The current rules.
struct Now {
    rules: Rules,
    /// By the names of the rules that limit.
    handles: HashMap<String, Arc<Handle>>,
}

impl Live {
    pub(crate) fn new(
        rules: Rules,
        dispatcher: Arc<Dispatcher>,
        denials: usize,
        telemetry: Settings,
    ) -> Self {
        let now = Now {
            rules: rules.clone(),
            handles: HashMap::new(),
        };
        let live = Self {
            dispatcher,
            denials,
            telemetry,
            now: ArcSwap::from_pointee(now),
            unlimited: unlimited(),
            reload: Mutex::default(),
        };
        live.reload(rules);
        live
    }

    /// The handle of the last rule.
    pub(crate) fn last(&self) -> Arc<Handle> {
        let now = self.now.load();
        let last = now.rules.names().last().flatten();
        let handle = last.and_then(|name| now.handles.get(name));
        handle.unwrap_or(&self.unlimited).clone()
    }

    pub(crate) fn rule(&self, name: &str) -> Option<Arc<Handle>> {
        self.now.load().handles.get(name).cloned()
    }

    pub(crate) fn rules(&self) -> Rules {
        self.now.load().rules.clone()
    }

    pub(crate) fn queues(&self) -> usize {
        let handles = self.dispatcher.handles();
        handles.iter().map(|handle| handle.queues()).sum()
    }

    /// Uses the handles of the dispatcher for rules whose names it knows, and adds the others.
    pub(crate) fn reload(&self, rules: Rules) -> Reloaded {
        let _one_at_a_time = self.reload.lock();
        let reloaded = Reloaded::of(&self.rules(), &rules);
        let known = self.dispatcher.handles().into_iter();
        let by_name = |handle: Arc<Handle>| Some((handle.policy().name()?.to_owned(), handle));
        let known: HashMap<_, _> = known.filter_map(by_name).collect();
        let handles = rules.plans().filter_map(|plan| {
            let name = plan.policy.name()?.to_owned();
            let handle = match known.get(&name) {
                Some(handle) => {
                    handle.set_plan(plan.clone());
                    handle.clone()
                }
                None => Handle::new(&self.dispatcher, plan.clone(), self.telemetry, self.denials),
            };
            Some((name, handle))
        });
        let handles = handles.collect();
        self.now.store(Arc::new(Now { rules, handles }));
        reloaded
    }
}

/// Lets everything depart at once.
fn unlimited() -> Arc<Handle> {
    let store = MemoryStore::new();
    telemetry::unrecorded(|| {
        let dispatcher = Dispatcher::new(Arc::new(store.clone()), Some(store), "".into());
        Handle::new(&dispatcher, Policy::unlimited(), Settings::default(), 0)
    })
}

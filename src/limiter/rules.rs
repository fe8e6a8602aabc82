//! The rules of a limiter, while they change and as a key extractor: [`ByRules`].

use std::collections::HashMap;
use std::sync::Arc;

use super::{Kind, Limiter};
use crate::acquire::{Acquire, Progress};
use crate::cost::RequestOptions;
use crate::dispatcher::{Dispatcher, Handle, Settings};
use crate::error::BuildError;
use crate::key::{Extracted, KeyExtractor, RequestHead, host};
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::quota::REQUESTS;
use crate::rules::Rules;
use crate::store::MemoryStore;
use crate::telemetry;

impl Limiter {
    /// The rules, if it [has](crate::LimiterBuilder::rules) any.
    pub fn rules(&self) -> Option<Rules> {
        self.live().map(|live| live.rules())
    }

    /// A limiter that uses the policy of this rule for all requests; `None` if there is no such rule, or if it is
    /// exempt.
    ///
    /// It spends the same quotas as the adapters do by that rule, and is the way to [`peek`](Self::peek) at,
    /// [`pause`](Self::pause) or [`reset`](Self::reset) a key of it. It follows the rule when rules are
    /// [reloaded](Self::reload); if the rule is removed, its last policy stays.
    ///
    /// ```
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = Rules::new([
    ///     Rule::named("search").path("/search").quota(Quota::per_minute(30)),
    ///     Rule::exempt(),
    /// ])?;
    /// let limiter = Limiter::builder().rules(rules).build()?;
    ///
    /// let search = limiter.rule("search").expect("a rule that limits");
    /// search.acquire("api.example.com").await?;
    /// assert_eq!(search.peek("api.example.com").await?.remaining(), 29);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rule(&self, name: &str) -> Option<Self> {
        let handle = self.live()?.rule(name)?;
        Some(Self {
            kind: Kind::Rule(handle),
        })
    }

    /// Changes the rules, for all clones of this limiter at once.
    ///
    /// Rules are compared by their names. New requests fall under the new rules. Requests that wait keep their order and
    /// depart under the new policy of their rule, as with [`set_quotas`](Self::set_quotas); under its former one if the
    /// rule was removed. Recorded departures still count, also when a rule that was removed comes back.
    ///
    /// ```
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let others = || Rule::named("others").quota(Quota::per_second(10));
    /// let limiter = Limiter::builder().rules(Rules::new([others()])?).build()?;
    ///
    /// let search = Rule::named("search").path("/search").quota(Quota::per_minute(30));
    /// limiter.reload(Rules::new([search, others()])?)?;
    /// assert!(limiter.rule("search").is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if this limiter has no rules: [`set_quotas`](Self::set_quotas) changes its quotas.
    pub fn reload(&self, rules: Rules) -> Result<(), BuildError> {
        let Some(live) = self.live() else {
            let problem = "this limiter has one policy: see `set_quotas`";
            return Err(BuildError::new("rules", problem));
        };
        live.reload(rules);
        Ok(())
    }

    /// An extractor that takes the policy, the key, the cost, the priority and the share from the rules of this limiter; the
    /// [`host`](crate::key::host()) as the key if it has no rules. This is the default of the adapters.
    ///
    /// A request falls under the rules at its time: a reload changes them for the extractor, too.
    ///
    /// ```
    /// use tower_throttle::key::{Extracted, KeyExtractor};
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let table = Rules::new([
    ///     Rule::named("search").path("/search").quota(Quota::per_minute(30)).cost(2),
    ///     Rule::exempt(),
    /// ])?;
    /// let extractor = Limiter::builder().rules(table).build()?.by_rules();
    ///
    /// let search = http::Request::get("https://api.example.com/search").body(())?;
    /// let Extracted::Ruled(ruled) = extractor.extract(&search) else { panic!("not exempt") };
    /// assert_eq!(ruled.rule(), "search");
    /// assert_eq!(ruled.key, Ok("api.example.com".into()));
    /// assert_eq!(ruled.cost, Some(2));
    ///
    /// let other = http::Request::get("https://api.example.com/").body(())?;
    /// assert_eq!(extractor.extract(&other), Extracted::Exempt);
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_rules(&self) -> ByRules {
        ByRules(self.clone())
    }

    #[inline]
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        match &self.kind {
            Kind::Plain(_) | Kind::Rule(_) => None,
            Kind::Ruled(live) => Some(live),
        }
    }

    /// The handle of the policy for a request; `None` if its rule has been removed.
    #[inline]
    fn handle_of(&self, extracted: &Extracted) -> Option<Arc<Handle>> {
        match (extracted, self.live()) {
            (Extracted::Ruled(ruled), Some(live)) => live.rule(ruled.rule()),
            _ => Some(self.handle()),
        }
    }

    /// Asks for the permit of a request; `None` if it needs none. These options go before those of the extractor.
    pub(crate) fn admit<R>(
        &self,
        extractor: &(impl KeyExtractor<R> + ?Sized),
        request: &R,
        options: RequestOptions,
    ) -> Option<Acquire> {
        let mut extracted = extractor.extract(request);
        let mut handle = self.handle_of(&extracted);
        if handle.is_none() {
            // The rule has just been removed.
            extracted = extractor.extract(request);
            handle = self.handle_of(&extracted);
        }
        let handle = handle.unwrap_or_else(|| self.handle());
        let (key, cost, rule) = match extracted {
            Extracted::Exempt => return None,
            Extracted::Key(key) => (Ok(key), None, RequestOptions::default()),
            Extracted::Refused(no_key) => (Err(no_key), None, RequestOptions::default()),
            Extracted::Ruled(ruled) => (ruled.key, ruled.cost, ruled.options),
        };
        let options = options.or(extractor.options(request)).or(rule);
        let mut costs = options.cost.unwrap_or_default();
        if self.live().is_some() {
            // The rule may count fewer units than others.
            costs = costs.within(handle.policy().units);
        }
        if let (None, Some(cost)) = (costs.of_unit(REQUESTS), cost) {
            costs.set(REQUESTS, cost);
        }
        let (key, progress) = match key {
            Ok(key) => (key, Progress::New),
            Err(no_key) => ("".into(), Progress::NoKey(no_key.into())),
        };
        let mut acquire = Acquire::new(handle, key).cost(costs);
        acquire.progress = progress;
        acquire.rank.priority = options.priority.unwrap_or_default();
        acquire.rank.share = options.share;
        Some(acquire)
    }
}

/// Takes the policy, the key, the cost, the priority and the share from the rules of a limiter; made by
/// [`Limiter::by_rules`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct ByRules(Limiter);

impl<R: RequestHead> KeyExtractor<R> for ByRules {
    fn extract(&self, request: &R) -> Extracted {
        match self.0.rules() {
            Some(rules) => {
                (rules.find(request, |_, _| {}).1).map_or(Extracted::Exempt, Extracted::Ruled)
            }
            None => host().extract(request),
        }
    }
}

/// The rules of a limiter; its clones share them.
pub(crate) struct Live {
    pub(super) dispatcher: Arc<Dispatcher>,
    now: Mutex<Now>,
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
    pub(crate) fn new(rules: Rules, dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            now: Mutex::new(Now::new(rules, &dispatcher)),
            dispatcher,
            unlimited: unlimited(),
            reload: Mutex::default(),
        }
    }

    /// The handle of the last rule.
    pub(crate) fn last(&self) -> Arc<Handle> {
        let now = self.now.lock();
        let last = now.rules.names().last().flatten();
        let handle = last.and_then(|name| now.handles.get(name));
        handle.unwrap_or(&self.unlimited).clone()
    }

    pub(crate) fn rule(&self, name: &str) -> Option<Arc<Handle>> {
        self.now.lock().handles.get(name).cloned()
    }

    pub(crate) fn rules(&self) -> Rules {
        self.now.lock().rules.clone()
    }

    fn reload(&self, rules: Rules) {
        let _one_at_a_time = self.reload.lock();
        let now = Now::new(rules, &self.dispatcher);
        // The handles of removed rules are dropped without the lock.
        let _before = std::mem::replace(&mut *self.now.lock(), now);
    }
}

impl Now {
    /// Uses the handles of the dispatcher for rules whose names it knows, and adds the others.
    fn new(rules: Rules, dispatcher: &Arc<Dispatcher>) -> Self {
        let known = dispatcher.handles().into_iter();
        let by_name = |handle: Arc<Handle>| Some((handle.policy().name()?.to_owned(), handle));
        let known: HashMap<_, _> = known.filter_map(by_name).collect();
        let handles = rules.policies().filter_map(|policy| {
            let name = policy.name()?.to_owned();
            let handle = match known.get(&name) {
                Some(handle) => {
                    handle.set_policy(policy.clone());
                    handle.clone()
                }
                None => Handle::new(dispatcher, policy.clone()),
            };
            Some((name, handle))
        });
        let handles = handles.collect();
        Self { rules, handles }
    }
}

/// Lets everything depart at once.
fn unlimited() -> Arc<Handle> {
    telemetry::unrecorded(|| {
        let store = Arc::new(MemoryStore::new());
        let dispatcher = Dispatcher::new(store, "".into(), Settings::default());
        Handle::new(&dispatcher, Policy::unlimited().into())
    })
}

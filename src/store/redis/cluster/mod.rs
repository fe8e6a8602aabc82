//! The servers of a cluster, on a [`Link`] to each: [`Cluster`].
//!
//! The cluster connection of the client library repeats calls of which it does not know what became of them, and
//! while one server does not answer it holds up those to all the others. Slots would be given back twice, and
//! one server that is out would be all. So this follows redirections itself, which takes no more than
//! the map of the slots.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::{Client, Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::map::{Map, Node};
use self::redirect::{Redirect, is_final, is_of_slot};
use super::failure::{Failure, shut_down, too_late};
use super::server::{Answer, Call};
use crate::backoff;
use crate::store::StoreError;

mod ask;
mod connect;
mod map;
mod redirect;
mod serve;
mod slots;

/// How often one call is redirected.
const REDIRECTS: u32 = 5;

/// About how long a map is kept, whatever calls meet with; and how long at most while nobody has a new one.
const LEAST_AGE: Duration = Duration::from_millis(200);
const LONGEST_AGE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct Cluster(Arc<Inner>);

struct Inner {
    /// The servers that the user has named.
    seeds: Vec<Client>,
    map: RwLock<Map>,
    renewing: Mutex<Renewing>,
}

struct Renewing {
    /// The runtime in which that is done.
    home: Handle,
    outcome: Outcome,
    not_before: Instant,
    /// How often in a row it has failed.
    setbacks: u32,
}

/// Whether the map could be renewed, once that is known.
type Outcome = watch::Receiver<Option<Result<(), StoreError>>>;

impl Cluster {
    /// Asks these servers, or others that they know of, who holds what.
    pub(super) async fn connect(home: Handle, seeds: Vec<Client>) -> Result<Self, StoreError> {
        const NO_SERVERS: &str = "a cluster takes at least one server, each with a host";
        let map = seeds.first().and_then(|it| Map::new(home.clone(), it));
        let no_servers = || StoreError::new(NO_SERVERS).invalid_url();
        let map = map.ok_or_else(no_servers)?;
        let cluster = Self(Arc::new(Inner {
            seeds,
            map: RwLock::new(map),
            renewing: Mutex::new(Renewing {
                home,
                outcome: watch::channel(None).1,
                not_before: Instant::now(),
                setbacks: 0,
            }),
        }));
        let renewed = cluster.renew();
        cluster
            .renewed(renewed, Instant::now() + 2 * ask::PATIENCE)
            .await?;
        Ok(cluster)
    }

    /// The server that holds this slot.
    async fn node(&self, slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.known(slot) {
            return Ok(node);
        }
        let renewed = self.renew();
        self.renewed(renewed, deadline).await?;
        let uncovered = || StoreError::new("no server of the cluster holds the key");
        self.known(slot).ok_or_else(uncovered)
    }

    fn known(&self, slot: u16) -> Option<Arc<Node>> {
        self.0.map.read().node(slot).cloned()
    }

    /// Sends to the server of a slot, or to where that says it is.
    async fn send(
        &self,
        slot: u16,
        call: Call<'_>,
        deadline: Instant,
    ) -> Result<Answer<Value>, Failure> {
        let asking = redis::cmd("ASKING");
        let mut before: Option<&Cmd> = None;
        let mut node = self.node(slot, deadline).await.map_err(Failure::Unsent)?;
        for _ in 0..REDIRECTS {
            let failure = match node.link.send(call, before, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let Some(to) = Redirect::of(&failure) else {
                self.note(slot, &failure);
                return Err(failure);
            };
            let Some(next) = self.follow(slot, &to, Some(&node)) else {
                self.0.map.write().unsettle(slot);
                return Err(failure);
            };
            node = next;
            before = matches!(to, Redirect::Ask(_)).then_some(&asking);
        }
        self.0.map.write().unsettle(slot);
        let error = StoreError::new("the servers of the cluster send the call to and fro");
        Err(Failure::Unsent(error))
    }

    /// Where a redirection leads that this server has answered, or the one that was to hold the slot.
    fn follow(&self, slot: u16, to: &Redirect, from: Option<&Arc<Node>>) -> Option<Arc<Node>> {
        let mut map = self.0.map.write();
        let from = from.or(map.node(slot)).map_or("", |it| &*it.host);
        let address = slots::address(to.address(), from)?;
        if matches!(to, Redirect::Ask(_)) {
            return Some(map.at(address));
        }
        let node = map.moved(slot, address);
        drop(map);
        // Others may have moved, too.
        self.renew();
        Some(node)
    }

    /// Where a call fails, another server may hold the keys by now.
    fn note(&self, slot: u16, failure: &Failure) {
        if is_of_slot(failure) {
            self.0.map.write().unsettle(slot);
        }
        if !is_final(failure) {
            self.renew();
        }
    }

    async fn renewed(&self, mut outcome: Outcome, deadline: Instant) -> Result<(), StoreError> {
        let outcome = timeout_at(deadline, outcome.wait_for(Option::is_some)).await;
        match outcome {
            Ok(Ok(outcome)) => outcome.clone().unwrap_or_else(|| Err(shut_down())),
            Ok(Err(_)) => {
                // The next time, here.
                self.0.renewing.lock().home = Handle::current();
                Err(shut_down())
            }
            Err(elapsed) => Err(too_late().caused_by(elapsed)),
        }
    }

    /// Asks anew for the map, in a task, unless somebody does or has just done so.
    fn renew(&self) -> Outcome {
        let mut renewing = self.0.renewing.lock();
        let now = Instant::now();
        let is_under_way =
            renewing.outcome.borrow().is_none() && renewing.outcome.has_changed().is_ok();
        if is_under_way || now < renewing.not_before {
            return renewing.outcome.clone();
        }
        let (sender, outcome) = watch::channel(None);
        renewing.outcome = outcome.clone();
        let pause = backoff::before(renewing.setbacks + 1, LEAST_AGE, LONGEST_AGE);
        renewing.not_before = now + LEAST_AGE / 2 + pause;
        let home = renewing.home.clone();
        drop(renewing);
        let cluster = self.clone();
        home.spawn(async move {
            let nodes = cluster.0.map.read().nodes();
            let ranges = ask::first_of(nodes, &cluster.0.seeds).await;
            let outcome = ranges.map(|ranges| cluster.0.map.write().renew(ranges));
            {
                let mut renewing = cluster.0.renewing.lock();
                renewing.setbacks = outcome.as_ref().map_or(renewing.setbacks + 1, |()| 0);
            }
            sender.send_replace(Some(outcome));
        });
        outcome
    }
}

//! The servers of a cluster: [`Cluster`].
//!
//! The cluster client of `redis` repeats calls whose outcome it does not know, and does not say which server
//! answered. So this module keeps the map of the slots itself, and follows redirections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use parking_lot::RwLock;
use redis::{Client, Pipeline, Value};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::errors;
use super::map::{Map, Member, address};
use super::node::Node;
use super::slots::{self, Range, Redirect, slot_of, tag_of};
use super::target;
use super::{Answered, Servers, Topology, tls};
use crate::store::StoreError;

/// The most redirections of one command.
const REDIRECTS: u32 = 5;

/// The least time between two updates of the map.
const LEAST_AGE: Duration = Duration::from_millis(100);

/// The time that one server gets to return the map.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The time that the servers get to return the first map.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Servers that are asked at the same time, so that a few that do not answer delay nothing.
const ASKED_AT_ONCE: usize = 3;

#[derive(Clone)]
struct Cluster(Arc<Inner>);

struct Inner {
    map: RwLock<Map>,
    updates: Attempts,
}

impl Servers {
    /// The cluster that the servers at these URLs are part of. All its servers are connected to with the user, the
    /// password and the TLS settings of the first URL.
    pub(crate) fn cluster<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Self, StoreError> {
        let clients = urls.into_iter().map(|url| target::client(url.as_ref()));
        Self::cluster_of_clients(clients.collect::<Result<Vec<_>, _>>()?)
    }

    /// The cluster that the servers of these clients are part of. Only the address is used of all but the first.
    pub(crate) fn cluster_of_clients(
        clients: impl IntoIterator<Item = Client>,
    ) -> Result<Self, StoreError> {
        let clients: Vec<_> = clients.into_iter().collect();
        tls::prepare(&clients);
        let seeds = clients.iter().map(|it| address(it.get_connection_info()));
        let seeds: Option<Vec<_>> = seeds.collect();
        let info = clients.first().map(|it| it.get_connection_info().clone());
        let (Some(seeds), Some(info)) = (seeds, info) else {
            let none = "a cluster takes at least one server, each with a host and a port";
            return Err(StoreError::new(none).invalid_url());
        };
        Ok(Self::on(Cluster(Arc::new(Inner {
            map: RwLock::new(Map::new(info, seeds)),
            updates: Attempts::new(LEAST_AGE),
        }))))
    }
}

impl Cluster {
    async fn member(&self, slot: u16, deadline: Instant) -> Result<Arc<Member>, StoreError> {
        if let Some(member) = self.known(slot) {
            return Ok(member);
        }
        self.updated(deadline).await?;
        let uncovered = || StoreError::new("no server of the cluster holds the key");
        self.known(slot).ok_or_else(uncovered)
    }

    /// Waits for an update of the map.
    async fn updated(&self, deadline: Instant) -> Result<(), StoreError> {
        let update = || self.clone().update();
        self.0.updates.join(deadline, update).await
    }

    fn known(&self, slot: u16) -> Option<Arc<Member>> {
        self.0.map.read().holder(slot)
    }

    /// Takes the map of the first server that answers, of those that are known and the seeds.
    async fn update(self) -> Result<(), StoreError> {
        let members = self.0.map.read().in_random_order();
        let answers = members.into_iter().map(|it| ask(it).boxed());
        let mut answers = stream::iter(answers).buffer_unordered(ASKED_AT_ONCE);
        let mut why = errors::unreachable();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(ranges) => {
                    self.0.map.write().replace(ranges);
                    self.0.updates.succeed();
                    return Ok(());
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Notes which slots have moved. If other servers may hold the keys by now, updates the map.
    fn note_moved(&self, host: &str, answer: &Result<Vec<Answered>, StoreError>) {
        if may_have_moved(answer) {
            drop(self.0.updates.start(self.clone().update()));
        }
        for (_, redirect) in answer.iter().flat_map(|it| redirects(it, host)) {
            if !redirect.is_ask {
                self.0
                    .map
                    .write()
                    .move_slot(redirect.slot, redirect.address);
            }
        }
    }

    /// Sends commands again that were redirected, and puts the new answers in their places.
    async fn follow(
        &self,
        commands: &Pipeline,
        answers: &mut [Answered],
        redirects: Vec<(usize, Redirect)>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let mut by_server = BTreeMap::<_, BTreeSet<usize>>::new();
        for (place, it) in redirects {
            let places = by_server.entry((it.address, it.is_ask)).or_default();
            places.insert(place);
        }
        for ((address, is_ask), places) in by_server {
            let mut pipe = redis::pipe();
            for (place, command) in commands.cmd_iter().enumerate() {
                if places.contains(&place) {
                    if is_ask {
                        pipe.cmd("ASKING");
                    }
                    pipe.add_command(command.clone());
                }
            }
            let member = self.0.map.write().member(address);
            let again = member.node.run(&pipe, deadline).await;
            match again {
                Ok(again) => {
                    let step = 1 + usize::from(is_ask);
                    let again = again.into_iter().skip(step - 1).step_by(step);
                    for (place, answer) in places.into_iter().zip(again) {
                        answers[place] = answer;
                    }
                }
                // The caller gets none of the answers, as if all of them were lost.
                Err(error) if error.is_outcome_unknown() => return Err(error),
                // The redirections stay in their places.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Topology for Cluster {
    fn shard(&self, name: &str) -> u64 {
        self.known(slot_of(name)).map_or(u64::MAX, |it| it.id)
    }

    fn slot_tag(&self, name: &str) -> Option<String> {
        Some(tag_of(slot_of(name)))
    }

    fn run<'a>(
        &'a self,
        name: &'a str,
        commands: &'a Pipeline,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<Answered>, StoreError>> {
        async move {
            let member = self.member(slot_of(name), deadline).await?;
            let mut answer = member.node.run(commands, deadline).await;
            for _ in 0..REDIRECTS {
                self.note_moved(&member.host, &answer);
                let mut answers = answer?;
                let redirects = redirects(&answers, &member.host);
                if redirects.is_empty() {
                    return Ok(answers);
                }
                let followed = self.follow(commands, &mut answers, redirects, deadline);
                answer = followed.await.map(|()| answers);
            }
            answer
        }
        .boxed()
    }

    fn node<'a>(
        &'a self,
        name: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Node, StoreError>> {
        async move { Ok(self.member(slot_of(name), deadline).await?.node.clone()) }.boxed()
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.updated(Instant::now() + CONNECT_TIMEOUT).boxed()
    }

    fn any_node(&self) -> Option<Node> {
        self.0.map.read().any().map(|it| it.node.clone())
    }

    fn each(&self, deadline: Instant) -> BoxFuture<'_, Result<Vec<Node>, StoreError>> {
        async move {
            // Another server may have taken over since the last call.
            let updated = self.updated(deadline).await;
            let unknown = self.0.map.read().uncovered();
            if let Some(slot) = unknown {
                updated?;
                self.member(slot, deadline).await?;
            }
            let holders = self.0.map.read().holders();
            Ok(holders.iter().map(|it| it.node.clone()).collect())
        }
        .boxed()
    }

    fn note(&self, name: &str, answer: &Result<Vec<Answered>, StoreError>) {
        let host = self.known(slot_of(name)).map(|it| it.host.clone());
        self.note_moved(host.as_deref().unwrap_or_default(), answer);
    }
}

async fn ask(member: Arc<Member>) -> Result<Vec<Range>, StoreError> {
    let mut pipe = redis::pipe();
    pipe.cmd("CLUSTER").arg("SLOTS");
    let answers = member.node.run(&pipe, Instant::now() + TIMEOUT).await?;
    let value = answers.into_iter().next().map(|it| it.value);
    if let Some(Value::ServerError(error)) = &value {
        return Err(errors::refused(error));
    }
    let ranges = value.and_then(|it| slots::read(it, &member.host));
    // A server that has left the cluster knows of none.
    let ranges = ranges.filter(|it| !it.is_empty());
    ranges.ok_or_else(|| StoreError::new("redis does not report which servers hold the slots"))
}

/// True if another server may hold the keys of this call by now.
fn may_have_moved(answer: &Result<Vec<Answered>, StoreError>) -> bool {
    match answer {
        Ok(answers) => answers.iter().any(|it| match &it.value {
            Value::ServerError(error) => errors::refused(error).is_outage(),
            _ => false,
        }),
        Err(error) => error.is_outage(),
    }
}

/// The places of commands that were redirected.
fn redirects(answers: &[Answered], host: &str) -> Vec<(usize, Redirect)> {
    let redirect = |(place, answer): (usize, &Answered)| match &answer.value {
        Value::ServerError(error) => Some((place, Redirect::of(error, host)?)),
        _ => None,
    };
    answers.iter().enumerate().filter_map(redirect).collect()
}

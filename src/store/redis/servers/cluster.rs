//! The servers of a cluster: [`Cluster`].
//!
//! The cluster client of `redis` repeats calls whose outcome it does not know, and does not say which server
//! answered. So this module keeps the map of the slots itself, and follows redirections.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use hashbrown::HashMap;
use parking_lot::RwLock;
use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisResult, Value};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::errors::{self, Secrets};
use super::node::Node;
use super::slots::{self, Address, Range, Redirect, SLOTS, slot_of};
use super::target::{self, Target};
use super::{Answered, Servers, Topology, tls};
use crate::store::StoreError;

/// The most redirections of one command.
const REDIRECTS: u32 = 5;

/// The least time between two updates of the map.
const LEAST_AGE: Duration = Duration::from_millis(100);

/// The time that one server gets to return the map.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Servers that are asked at the same time, so that a few that do not answer delay nothing.
const ASKED_AT_ONCE: usize = 3;

#[derive(Clone)]
struct Cluster(Arc<Inner>);

struct Inner {
    seeds: Vec<Address>,
    map: RwLock<Map>,
    updates: Attempts,
}

struct Map {
    /// How to connect, except for the address.
    info: ConnectionInfo,
    members: HashMap<Address, Arc<Member>>,
    by_slot: Vec<Option<Arc<Member>>>,
    last_id: u64,
}

/// A server of the cluster.
struct Member {
    id: u64,
    host: String,
    node: Node,
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
            seeds,
            map: RwLock::new(Map::new(info)),
            updates: Attempts::new(LEAST_AGE),
        }))))
    }
}

impl Cluster {
    async fn member(&self, slot: u16, deadline: Instant) -> Result<Arc<Member>, StoreError> {
        if let Some(member) = self.known(slot) {
            return Ok(member);
        }
        let update = || self.clone().update();
        self.0.updates.join(deadline, update).await?;
        let uncovered = || StoreError::new("no server of the cluster holds the key");
        self.known(slot).ok_or_else(uncovered)
    }

    fn known(&self, slot: u16) -> Option<Arc<Member>> {
        self.0.map.read().by_slot[usize::from(slot)].clone()
    }

    /// Updates the map in the background, unless it has just been updated.
    fn start_update(&self) {
        self.0.updates.start(self.clone().update());
    }

    /// Takes the map of the first server that answers: of those in the map in random order, then of the seeds.
    async fn update(self) -> Result<(), StoreError> {
        let members = {
            let mut map = self.0.map.write();
            let seeds = self.0.seeds.iter().map(|it| map.member(it.clone()));
            let seeds: Vec<_> = seeds.collect();
            let mut members: Vec<_> = map.members.values().cloned().collect();
            let random = RandomState::new();
            members.sort_by_cached_key(|it| {
                let is_seed = seeds.iter().any(|seed| seed.id == it.id);
                (is_seed, random.hash_one(it.id))
            });
            members
        };
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

    /// Sends commands again whose answers are redirections, and puts the new answers in their places.
    async fn follow(
        &self,
        commands: &Pipeline,
        answers: &mut [Answered],
        redirected: BTreeMap<(Address, bool), Vec<usize>>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        for ((address, is_ask), places) in redirected {
            let member = self.0.map.write().member(address);
            let mut pipe = redis::pipe();
            for (place, command) in commands.cmd_iter().enumerate() {
                if places.binary_search(&place).is_err() {
                    continue;
                }
                if is_ask {
                    pipe.add_command(Cmd::new().arg("ASKING").clone());
                }
                pipe.add_command(command.clone());
            }
            let step = if is_ask { 2 } else { 1 };
            match member.node.run(&pipe, deadline).await {
                Ok(again) => {
                    let again = again.into_iter().skip(step - 1).step_by(step);
                    for (place, answer) in places.into_iter().zip(again) {
                        answers[place] = answer;
                    }
                }
                // The answers so far are given up, as if all of them were lost.
                Err(error) if error.is_outcome_unknown() => return Err(error),
                // The redirections stay in their places.
                Err(_) => self.start_update(),
            }
        }
        Ok(())
    }

    /// Notes in the map which slots have moved.
    fn note(&self, redirects: &[(usize, Redirect)]) {
        let moved = redirects.iter().filter(|(_, it)| !it.is_ask);
        let moved: BTreeMap<_, _> = moved.map(|(_, it)| (it.slot, &it.address)).collect();
        let mut map = self.0.map.write();
        for (slot, address) in &moved {
            let member = map.member((*address).clone());
            map.by_slot[usize::from(*slot)] = Some(member);
        }
        drop(map);
        if !moved.is_empty() {
            self.start_update();
        }
    }
}

impl Topology for Cluster {
    fn shard(&self, name: &str) -> u64 {
        self.known(slot_of(name)).map_or(u64::MAX, |it| it.id)
    }

    fn run<'a>(
        &'a self,
        name: &'a str,
        commands: &'a Pipeline,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<Answered>, StoreError>> {
        async move {
            let member = self.member(slot_of(name), deadline).await?;
            let answers = member.node.run(commands, deadline).await;
            if may_have_moved(&answers) {
                self.start_update();
            }
            let mut answers = answers?;
            for _ in 0..REDIRECTS {
                let redirects = redirects(&answers, &member.host);
                if redirects.is_empty() {
                    break;
                }
                self.note(&redirects);
                let mut redirected = BTreeMap::<_, Vec<usize>>::new();
                for (place, it) in redirects {
                    redirected
                        .entry((it.address, it.is_ask))
                        .or_default()
                        .push(place);
                }
                self.follow(commands, &mut answers, redirected, deadline)
                    .await?;
            }
            Ok(answers)
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

    fn any_node(&self) -> Option<Node> {
        let mut map = self.0.map.write();
        if map.members.is_empty() {
            for seed in &self.0.seeds {
                map.member(seed.clone());
            }
        }
        let random = RandomState::new();
        let members = map.members.values();
        let any = members.min_by_key(|it| random.hash_one(it.id));
        any.map(|it| it.node.clone())
    }

    fn each(&self, deadline: Instant) -> BoxFuture<'_, Result<Vec<Node>, StoreError>> {
        async move {
            let unknown = (0..SLOTS).find(|&slot| self.known(slot).is_none());
            if let Some(slot) = unknown {
                self.member(slot, deadline).await?;
            }
            let map = self.0.map.read();
            let holders: HashMap<u64, &Arc<Member>> =
                map.by_slot.iter().flatten().map(|it| (it.id, it)).collect();
            Ok(holders.into_values().map(|it| it.node.clone()).collect())
        }
        .boxed()
    }

    fn check<'a>(
        &'a self,
        answer: &'a Result<Vec<Answered>, StoreError>,
        deadline: Instant,
    ) -> BoxFuture<'a, ()> {
        async move {
            if may_have_moved(answer) {
                // If this fails, so does the next call.
                let _ = self
                    .0
                    .updates
                    .join(deadline, || self.clone().update())
                    .await;
            }
        }
        .boxed()
    }
}

impl Map {
    fn new(info: ConnectionInfo) -> Self {
        Self {
            info,
            members: HashMap::new(),
            by_slot: vec![None; SLOTS.into()],
            last_id: 0,
        }
    }

    /// The server at this address, which may be new.
    fn member(&mut self, address: Address) -> Arc<Member> {
        if let Some(member) = self.members.get(&address) {
            return member.clone();
        }
        self.last_id += 1;
        let member = Arc::new(Member {
            id: self.last_id,
            host: address.0.clone(),
            node: Node::new(At(self
                .info
                .clone()
                .set_addr(at(self.info.addr(), &address)))),
        });
        self.members.insert(address, member.clone());
        member
    }

    /// Servers without slots are removed.
    fn replace(&mut self, ranges: Vec<Range>) {
        self.by_slot.fill(None);
        let mut holders = HashMap::new();
        for (first, last, address) in ranges {
            let member = self.member(address.clone());
            self.by_slot[usize::from(first)..=usize::from(last)].fill(Some(member.clone()));
            holders.insert(address, member);
        }
        self.members = holders;
    }
}

/// A server of the cluster, by its address.
struct At(ConnectionInfo);

impl Target for At {
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>> {
        let client = Client::open(self.0.clone());
        async { client }.boxed()
    }

    fn secrets(&self) -> Secrets {
        Secrets::of([self.0.redis_settings()])
    }

    fn is_known_by_address(&self) -> bool {
        true
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

fn address(info: &ConnectionInfo) -> Option<Address> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

fn at(template: &ConnectionAddr, (host, port): &Address) -> ConnectionAddr {
    match template.clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host.clone(), *port),
    }
}

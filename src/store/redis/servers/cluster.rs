//! The servers of a cluster: [`Cluster`].
//!
//! The cluster client of `redis` repeats calls whose outcome it does not know, and does not say which server
//! answered. So this module keeps the map of the slots itself, and follows redirections.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, stream};
use hashbrown::{HashMap, HashSet};
use redis::{Cmd, ConnectionAddr, ConnectionInfo, Pipeline};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::errors;
use super::node::Node;
use super::slots::{self, Address, Range, Redirect, SLOTS, slot_of, tag_of};
use super::target::{self, Target};
use super::{Answers, CommandAnswer, Servers, Topology};
use crate::lock::Mutex;
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
struct Cluster {
    map: Arc<Mutex<Map>>,
    updates: Attempts<()>,
}

/// Which server holds which slot.
struct Map {
    /// How to connect, except for the address.
    info: ConnectionInfo,
    /// The servers that the user has named. They may hold no slots, or have left the cluster.
    seeds: Vec<Address>,
    nodes: HashMap<Address, Node>,
    by_slot: Vec<Option<Node>>,
}

/// The cluster that the servers at these URLs are part of. All its servers are connected to with the user, the
/// password and the TLS settings of the first URL.
pub(crate) fn cluster<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
) -> Result<Servers, StoreError> {
    let infos = urls.into_iter().map(|url| target::info(url.as_ref()));
    cluster_at(infos.collect::<Result<_, _>>()?)
}

/// The cluster that the servers at these addresses are part of. Only the address is used of all but the first.
pub(crate) fn cluster_at(infos: Vec<ConnectionInfo>) -> Result<Servers, StoreError> {
    let seeds: Option<Vec<_>> = infos.iter().map(address).collect();
    let info = infos.into_iter().next();
    let (Some(seeds), Some(info)) = (seeds, info) else {
        let none = "a cluster needs the URL of at least one server, each with a host";
        return Err(StoreError::new(none).invalid_url());
    };
    let mut map = Map {
        info,
        seeds: seeds.clone(),
        nodes: HashMap::new(),
        by_slot: vec![None; SLOTS.into()],
    };
    for seed in seeds {
        map.node(seed);
    }
    Ok(Arc::new(Cluster {
        map: Arc::new(Mutex::new(map)),
        updates: Attempts::new(LEAST_AGE),
    }))
}

impl Cluster {
    async fn holder(&self, slot: u16, deadline: Instant) -> Result<Node, StoreError> {
        if let Some(node) = self.known(slot) {
            return Ok(node);
        }
        self.updated(deadline).await?;
        self.known(slot).ok_or_else(uncovered)
    }

    /// Waits for an update of the map.
    async fn updated(&self, deadline: Instant) -> Result<(), StoreError> {
        let update = || self.clone().update(0);
        self.updates.join(deadline, |()| false, update).await
    }

    fn known(&self, slot: u16) -> Option<Node> {
        self.map.lock().by_slot[usize::from(slot)].clone()
    }

    /// Takes the map of the first server that answers, of those that are known and the seeds. That of the server `doubted`,
    /// which failed a call, counts if no other has one: it may have lost the others.
    async fn update(self, doubted: u64) -> Result<(), StoreError> {
        let nodes = self.map.lock().in_random_order();
        let ask = async |node: Node| (node.target().number == doubted, ask(node).await);
        let mut answers = stream::iter(nodes).map(ask).buffer_unordered(ASKED_AT_ONCE);
        let mut found = Err(errors::unreachable());
        while let Some((is_doubted, answer)) = answers.next().await {
            let is_last = answer.is_ok() && !is_doubted;
            if answer.is_ok() || found.is_err() {
                found = answer;
            }
            if is_last {
                break;
            }
        }
        self.map.lock().replace(found?);
        Ok(())
    }

    /// Follows the redirections of a command. A redirected command had no effect.
    async fn follow(
        &self,
        command: &Cmd,
        mut answer: CommandAnswer,
        mut node: Node,
        deadline: Instant,
    ) -> Result<CommandAnswer, StoreError> {
        for _ in 0..REDIRECTS {
            let Some(redirect) = redirect(&answer, &node) else {
                break;
            };
            let mut pipe = redis::pipe();
            if redirect.is_ask {
                pipe.cmd("ASKING");
            }
            pipe.add_command(command.clone());
            node = self.map.lock().node(redirect.address);
            let again = node.run("", &pipe, deadline).await;
            if redirect.is_ask {
                // The server that the slot leaves is not out, even if the other one is, or does not take the slot.
                let is_out = |it: &CommandAnswer| it.refusal().is_some_and(|it| it.is_outage());
                return match again.map(|mut answers| answers.pop()) {
                    Ok(Some(again)) if !is_out(&again) => Ok(again),
                    Err(error) if error.is_outcome_unknown() => {
                        Err(errors::moved().outcome_unknown())
                    }
                    Ok(_) | Err(_) => Ok(answer),
                };
            }
            self.note(&node, &again);
            match again.map(|mut answers| answers.pop()) {
                Ok(Some(again)) => answer = again,
                Err(error) if error.is_outcome_unknown() => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(answer)
    }
}

impl Map {
    /// The servers that hold slots, by their numbers.
    fn holders(&self) -> HashMap<u64, &Node> {
        let nodes = self.by_slot.iter().flatten();
        nodes.map(|it| (it.target().number, it)).collect()
    }

    /// All servers, at random, those without slots last: they may have left the cluster.
    fn in_random_order(&self) -> Vec<Node> {
        let (random, holders) = (RandomState::new(), self.holders());
        let mut nodes: Vec<_> = self.nodes.values().cloned().collect();
        nodes.sort_by_cached_key(|it| {
            let number = it.target().number;
            (!holders.contains_key(&number), random.hash_one(number))
        });
        nodes
    }

    /// The server at this address, which may be new.
    fn node(&mut self, address: Address) -> Node {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let connect = |address: &Address| {
            let mut to = self.info.addr().clone();
            use ConnectionAddr::{Tcp, TcpTls};
            if let Tcp(host, port) | TcpTls { host, port, .. } = &mut to {
                (*host, *port) = address.clone();
            }
            Node::new(Target {
                is_known_by_address: true,
                host: address.0.clone(),
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                ..Target::at(self.info.clone().set_addr(to))
            })
        };
        let node = self.nodes.entry(address);
        node.or_insert_with_key(connect).clone()
    }

    /// Takes over which server holds which slots. Other servers are removed, except for the seeds.
    fn replace(&mut self, ranges: Vec<Range>) {
        self.by_slot.fill(None);
        let mut known: HashSet<_> = self.seeds.iter().cloned().collect();
        for (first, last, address) in ranges {
            let node = self.node(address.clone());
            self.by_slot[usize::from(first)..=usize::from(last)].fill(Some(node));
            known.insert(address);
        }
        self.nodes.retain(|address, _| known.contains(address));
    }
}

#[async_trait]
impl Topology for Cluster {
    fn shard(&self, name: &str) -> u64 {
        let node = self.known(slot_of(name));
        node.map_or(u64::MAX, |it| it.target().number)
    }

    fn slot_suffix(&self, name: &str) -> String {
        format!(":{{{}}}", tag_of(slot_of(name)))
    }

    async fn run(&self, name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        let node = self.holder(slot_of(name), deadline).await?;
        let answer = node.run(name, commands, deadline).await;
        if !self.note(&node, &answer) {
            return answer;
        }
        // If one outcome is unknown, the caller gets none of the answers, as if all of them were lost.
        let pairs = answer?.into_iter().zip(commands.cmd_iter());
        let follow = |(answer, command)| self.follow(command, answer, node.clone(), deadline);
        try_join_all(pairs.map(follow)).await
    }

    async fn node(&self, name: &str, deadline: Instant) -> Result<Node, StoreError> {
        self.holder(slot_of(name), deadline).await
    }

    async fn connect(&self) -> Result<(), StoreError> {
        self.updated(Instant::now() + CONNECT_TIMEOUT).await
    }

    fn any_node(&self) -> Option<Node> {
        self.map.lock().in_random_order().into_iter().next()
    }

    fn has(&self, node: &Node) -> bool {
        let map = self.map.lock();
        let mut holders = map.by_slot.iter().flatten().peekable();
        let number = node.target().number;
        holders.peek().is_none() || holders.any(|it| it.target().number == number)
    }

    async fn primaries(&self, deadline: Instant) -> Result<Vec<Node>, StoreError> {
        // Another server may have taken over since the last call.
        let updated = self.updated(deadline).await;
        let map = self.map.lock();
        if map.by_slot.iter().any(Option::is_none) {
            updated?;
            return Err(uncovered());
        }
        Ok(map.holders().into_values().cloned().collect())
    }

    fn note(&self, node: &Node, answer: &Answers) -> bool {
        let refusals = answer.iter().flatten().filter_map(CommandAnswer::refusal);
        let mut errors = refusals.chain(answer.as_ref().err().cloned());
        if errors.any(|error| error.is_outage()) {
            let update = self.clone().update(node.target().number);
            drop(self.updates.start(|()| false, update));
        }
        let answers = answer.iter().flatten();
        let redirects: Vec<_> = answers.filter_map(|it| redirect(it, node)).collect();
        let is_redirected = !redirects.is_empty();
        for redirect in redirects.into_iter().filter(|it| !it.is_ask) {
            let mut map = self.map.lock();
            let node = map.node(redirect.address);
            map.by_slot[usize::from(redirect.slot)] = Some(node);
        }
        is_redirected
    }
}

async fn ask(node: Node) -> Result<Vec<Range>, StoreError> {
    let mut pipe = redis::pipe();
    pipe.cmd("CLUSTER").arg("SLOTS");
    let answers = node.run("", &pipe, Instant::now() + TIMEOUT).await?;
    let answer = answers.into_iter().next();
    let value = answer.map(CommandAnswer::into_value).transpose()?;
    let ranges = value.and_then(|it| slots::read(it, &node.target().host));
    // A server that has left the cluster knows of none.
    let ranges = ranges.filter(|it| !it.is_empty());
    let none = "redis reports no cluster: check that cluster mode is on, or connect without it";
    ranges.ok_or_else(|| StoreError::new(none))
}

fn uncovered() -> StoreError {
    StoreError::new("no server of the cluster holds the slot of the key: check `CLUSTER INFO`")
}

fn redirect(answer: &CommandAnswer, node: &Node) -> Option<Redirect> {
    Redirect::of(answer.server_error()?, &node.target().host)
}

fn address(info: &ConnectionInfo) -> Option<Address> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

//! Which server of a cluster holds a slot: [`Map`].

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use hashbrown::HashMap;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult};

use super::errors::Secrets;
use super::node::Node;
use super::slots::{Address, Range, SLOTS};
use super::target::Target;

pub(super) struct Map {
    /// How to connect, except for the address.
    info: ConnectionInfo,
    members: HashMap<Address, Arc<Member>>,
    by_slot: Vec<Option<Arc<Member>>>,
    /// The servers that the user has named. They may hold no slots, or have left the cluster.
    seeds: Vec<Arc<Member>>,
    last_id: u64,
}

/// A server of the cluster.
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) host: String,
    pub(super) node: Node,
}

impl Map {
    pub(super) fn new(info: ConnectionInfo, seeds: Vec<Address>) -> Self {
        let mut map = Self {
            info,
            members: HashMap::new(),
            by_slot: vec![None; SLOTS.into()],
            seeds: Vec::new(),
            last_id: 0,
        };
        map.seeds = seeds.into_iter().map(|it| map.member(it)).collect();
        map
    }

    /// The server that holds this slot.
    pub(super) fn holder(&self, slot: u16) -> Option<Arc<Member>> {
        self.by_slot[usize::from(slot)].clone()
    }

    /// A slot without a known server.
    pub(super) fn uncovered(&self) -> Option<u16> {
        (0..SLOTS).find(|&slot| self.by_slot[usize::from(slot)].is_none())
    }

    /// All servers that hold slots.
    pub(super) fn holders(&self) -> Vec<Arc<Member>> {
        let holders = self.by_slot.iter().flatten();
        let holders: HashMap<_, _> = holders.map(|it| (it.id, it)).collect();
        holders.into_values().cloned().collect()
    }

    /// All servers to ask for the map, the seeds last.
    pub(super) fn in_random_order(&self) -> Vec<Arc<Member>> {
        let mut members: Vec<_> = self.members.values().cloned().collect();
        let random = RandomState::new();
        let is_seed = |id| self.seeds.iter().any(|it| it.id == id);
        members.sort_by_cached_key(|it| (is_seed(it.id), random.hash_one(it.id)));
        members
    }

    /// A server to subscribe to: a seed only if no other is known, because it may have left the cluster.
    pub(super) fn any(&self) -> Option<Arc<Member>> {
        let holders = self.holders();
        let all = if holders.is_empty() {
            &self.seeds
        } else {
            &holders
        };
        let random = RandomState::new();
        all.iter().min_by_key(|it| random.hash_one(it.id)).cloned()
    }

    pub(super) fn move_slot(&mut self, slot: u16, address: Address) {
        let member = self.member(address);
        self.by_slot[usize::from(slot)] = Some(member);
    }

    /// The server at this address, which may be new.
    pub(super) fn member(&mut self, address: Address) -> Arc<Member> {
        if let Some(member) = self.members.get(&address) {
            return member.clone();
        }
        self.last_id += 1;
        let info = self.info.clone();
        let info = info.set_addr(at(self.info.addr(), &address));
        let member = Arc::new(Member {
            id: self.last_id,
            host: address.0.clone(),
            node: Node::new(At(info)),
        });
        self.members.insert(address, member.clone());
        member
    }

    /// Takes over which server holds which slots. Other servers are removed, except for the seeds.
    pub(super) fn replace(&mut self, ranges: Vec<Range>) {
        self.by_slot.fill(None);
        let mut members = HashMap::new();
        for (first, last, address) in ranges {
            let member = self.member(address.clone());
            self.by_slot[usize::from(first)..=usize::from(last)].fill(Some(member.clone()));
            members.insert(address, member);
        }
        let is_seed = |it: &Arc<Member>| self.seeds.iter().any(|seed| seed.id == it.id);
        members.extend(self.members.drain().filter(|(_, it)| is_seed(it)));
        self.members = members;
    }
}

/// A server of the cluster, by its address.
struct At(ConnectionInfo);

impl Target for At {
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>> {
        ready(Client::open(self.0.clone())).boxed()
    }

    fn secrets(&self) -> Secrets {
        Secrets::of([self.0.redis_settings()])
    }

    fn is_known_by_address(&self) -> bool {
        true
    }
}

pub(super) fn address(info: &ConnectionInfo) -> Option<Address> {
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

//! Which server of a cluster holds a slot: [`Map`].

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use hashbrown::{HashMap, HashSet};
use redis::{ConnectionAddr, ConnectionInfo};

use super::connection::next_number;
use super::node::Node;
use super::slots::{Address, Range, SLOTS};
use super::target::Target;

pub(super) struct Map {
    /// How to connect, except for the address.
    info: ConnectionInfo,
    nodes: HashMap<Address, Node>,
    by_slot: Vec<Option<Node>>,
    /// The servers that the user has named. They may hold no slots, or have left the cluster.
    seeds: Vec<Address>,
}

impl Map {
    pub(super) fn new(info: ConnectionInfo, seeds: Vec<Address>) -> Self {
        let mut map = Self {
            info,
            nodes: HashMap::new(),
            by_slot: vec![None; SLOTS.into()],
            seeds,
        };
        map.replace(Vec::new());
        map
    }

    /// The server that holds this slot.
    pub(super) fn holder(&self, slot: u16) -> Option<Node> {
        self.by_slot[usize::from(slot)].clone()
    }

    /// True if the server of each slot is known.
    pub(super) fn is_complete(&self) -> bool {
        self.by_slot.iter().all(Option::is_some)
    }

    /// All servers that hold slots.
    pub(super) fn holders(&self) -> Vec<Node> {
        let mut seen = HashSet::new();
        let holders = self.by_slot.iter().flatten();
        let holders = holders.filter(|it| seen.insert(it.target().number));
        holders.cloned().collect()
    }

    /// All servers, at random, those without slots last: they may have left the cluster.
    pub(super) fn in_random_order(&self) -> Vec<Node> {
        let random = RandomState::new();
        let holders = self.by_slot.iter().flatten().map(|it| it.target().number);
        let holders: HashSet<_> = holders.collect();
        let mut nodes: Vec<_> = self.nodes.values().cloned().collect();
        nodes.sort_by_cached_key(|it| {
            let number = it.target().number;
            (!holders.contains(&number), random.hash_one(number))
        });
        nodes
    }

    pub(super) fn move_slot(&mut self, slot: u16, address: Address) {
        let node = self.node(address);
        self.by_slot[usize::from(slot)] = Some(node);
    }

    /// The server at this address, which may be new.
    pub(super) fn node(&mut self, address: Address) -> Node {
        let connect = |address: &Address| {
            let mut to = self.info.addr().clone();
            use ConnectionAddr::{Tcp, TcpTls};
            if let Tcp(host, port) | TcpTls { host, port, .. } = &mut to {
                (*host, *port) = address.clone();
            }
            Node::new(Target {
                is_known_by_address: true,
                host: address.0.clone(),
                number: next_number(),
                ..Target::at(self.info.clone().set_addr(to))
            })
        };
        let node = self.nodes.entry(address);
        node.or_insert_with_key(connect).clone()
    }

    /// Takes over which server holds which slots. Other servers are removed, except for the seeds.
    pub(super) fn replace(&mut self, ranges: Vec<Range>) {
        self.by_slot.fill(None);
        let mut nodes = HashMap::new();
        for (first, last, address) in ranges {
            let node = self.node(address.clone());
            self.by_slot[usize::from(first)..=usize::from(last)].fill(Some(node.clone()));
            nodes.insert(address, node);
        }
        for seed in self.seeds.clone() {
            let node = self.node(seed.clone());
            nodes.insert(seed, node);
        }
        self.nodes = nodes;
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

//! Which server holds a slot: [`Map`].

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use redis::{Client, ConnectionAddr, ConnectionInfo};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::slots::{Address, Ranges, SLOTS};
use crate::store::redis::link::Link;

/// For how long a slot is a part of its own that was on its way: longer than any pause between two calls about it.
const UNSETTLED: Duration = Duration::from_secs(10);

/// What is known of a cluster's servers.
pub(super) struct Map {
    home: Handle,
    /// How to connect, but for the address.
    info: ConnectionInfo,
    nodes: HashMap<Address, Arc<Node>>,
    /// The server of each slot.
    slots: Vec<Option<Arc<Node>>>,
    /// How often the servers have changed.
    generation: u64,
    /// Slots of which a server has said that it cannot serve them by itself, and until when each is a part of its own:
    /// they are no reason to take the server to be out.
    unsettled: HashMap<u16, Instant>,
}

/// A server.
pub(super) struct Node {
    /// A number that no other has.
    pub(super) id: u64,
    pub(super) host: String,
    pub(super) link: Link,
}

impl Map {
    /// Of a cluster whose servers are connected to as this one is. `None` if it has no host.
    pub(super) fn new(home: Handle, client: &Client) -> Option<Self> {
        let info = client.get_connection_info().clone();
        host(&info)?;
        Some(Self {
            home,
            info,
            nodes: HashMap::new(),
            slots: vec![None; SLOTS.into()],
            generation: 0,
            unsettled: HashMap::new(),
        })
    }

    pub(super) fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        self.slots[usize::from(slot)].as_ref()
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.values().cloned().collect()
    }

    /// The number of each server that holds anything, and a slot that it holds.
    pub(super) fn holders(&self) -> Vec<(u64, u16)> {
        let mut holders: Vec<(u64, u16)> = Vec::new();
        for (slot, node) in (0..SLOTS).zip(&self.slots) {
            if let Some(node) = node
                && !holders.iter().any(|&(id, _)| id == node.id)
            {
                holders.push((node.id, slot));
            }
        }
        holders
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The server at this address, which may be new.
    pub(super) fn at(&mut self, address: Address) -> Arc<Node> {
        if let Some(node) = self.nodes.get(&address) {
            return node.clone();
        }
        let info = with_address(self.info.clone(), &address);
        self.generation += 1;
        let node = Arc::new(Node {
            id: self.generation,
            host: address.0.clone(),
            link: Link::new(self.home.clone(), info),
        });
        self.nodes.insert(address, node.clone());
        node
    }

    /// Notes that a slot is on its way.
    pub(super) fn unsettle(&mut self, slot: u16) {
        let now = Instant::now();
        self.unsettled.retain(|_, until| now < *until);
        self.unsettled.insert(slot, now + UNSETTLED);
    }

    pub(super) fn is_unsettled(&self, slot: u16) -> bool {
        let until = self.unsettled.get(&slot);
        until.is_some_and(|until| Instant::now() < *until)
    }

    /// Notes that a slot has moved there.
    pub(super) fn moved(&mut self, slot: u16, address: Address) -> Arc<Node> {
        let node = self.at(address);
        self.slots[usize::from(slot)] = Some(node.clone());
        node
    }

    /// Takes over what a server knows. Those that hold nothing are forgotten.
    pub(super) fn renew(&mut self, ranges: Ranges) {
        self.slots.fill(None);
        let mut holding = HashMap::new();
        for (first, last, address) in ranges {
            let node = self.at(address.clone());
            self.slots[usize::from(first)..=usize::from(last)].fill(Some(node.clone()));
            holding.insert(address, node);
        }
        if holding.len() != self.nodes.len() {
            self.generation += 1;
        }
        self.nodes = holding;
    }
}

/// The host of a server that is connected to by this.
pub(super) fn host(info: &ConnectionInfo) -> Option<&str> {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host),
        _ => None,
    }
}

fn with_address(info: ConnectionInfo, (host, port): &Address) -> ConnectionInfo {
    let address = match info.addr().clone() {
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
    };
    info.set_addr(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        ("127.0.0.1".to_owned(), port)
    }

    #[tokio::test]
    async fn servers_keep_their_connection_as_long_as_they_hold_anything() {
        let client = Client::open("redis://user:password@127.0.0.1:1/").unwrap();
        let mut map = Map::new(Handle::current(), &client).unwrap();
        map.renew(vec![(0, 99, address(1)), (100, SLOTS - 1, address(2))]);
        let id = |map: &Map, slot| map.node(slot).unwrap().id;
        let (first, second) = (id(&map, 0), id(&map, 100));
        assert_eq!(map.holders(), [(first, 0), (second, 100)]);
        let generation = map.generation();

        assert_eq!(map.moved(5, address(2)).id, second);
        assert_eq!([id(&map, 4), id(&map, 5)], [first, second]);
        map.renew(vec![(0, 49, address(1)), (50, SLOTS - 1, address(2))]);
        assert_eq!([id(&map, 5), id(&map, 50)], [first, second]);
        assert_eq!(map.generation(), generation);

        map.renew(vec![(0, SLOTS - 2, address(2))]);
        assert_eq!(id(&map, 5), second);
        assert!(map.node(SLOTS - 1).is_none());
        assert_ne!(map.generation(), generation);
        map.renew(vec![(0, 49, address(1))]);
        assert_ne!(id(&map, 5), first);
    }
}

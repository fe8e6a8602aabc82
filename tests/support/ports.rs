//! [`spare_port`]: ports on loopback, of which several processes take their own.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

/// A port that is free and that no other process takes which runs such tests, below those for outgoing connections: a
/// client of a server that is down would sooner or later be given the port that it calls, and connect to itself.
pub fn spare_port() -> u16 {
    static CLAIMS: Mutex<Vec<Claim>> = Mutex::new(Vec::new());
    let mut claims = CLAIMS.lock().expect("no panic");
    loop {
        let left = claims.last_mut().map(|it| &mut it.left);
        let port = left.and_then(|left| left.find(|port| bind(*port).is_some()));
        match port {
            Some(port) => return port,
            None => claims.push(Claim::new()),
        }
    }
}

/// To ports that follow one another: others know by the first, which is taken until the process ends.
struct Claim {
    _first: TcpListener,
    left: Range<u16>,
}

impl Claim {
    const LENGTH: u16 = 250;

    fn new() -> Self {
        let mut firsts = (10_000..30_000).step_by(usize::from(Self::LENGTH));
        let claim = firsts.find_map(|first| {
            let left = first + 1..first + Self::LENGTH;
            bind(first).map(|_first| Self { _first, left })
        });
        claim.expect("a free port among eighty")
    }
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

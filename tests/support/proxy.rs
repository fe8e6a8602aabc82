//! [`Proxy`]: a stretch of network between clients and a server that a test can break in many ways.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::errors::until_ok;
use crate::ports::spare_port;
use crate::redis_server::wait_until;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

mod pump;

/// Passes bytes between clients and a server on loopback, and can fail in between.
///
/// It runs on a thread and a runtime of its own, so a busy test does not slow it. Methods block the thread for milliseconds.
/// As in networks, no bytes are lost in the middle of a connection: they come late, or none come any more.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    network: watch::Sender<Network>,
    made: AtomicUsize,
    inspector: Mutex<Option<Inspector>>,
    cut_replies: AtomicUsize,
    /// How many orders are carried out.
    applied: AtomicUsize,
}

/// The effects on new connections and on the bytes that pass.
#[derive(Debug, Clone, Default)]
struct Network {
    /// The port of loopback to which new connections lead.
    target: u16,
    delay: Duration,
    holds: bool,
    /// Drops bytes, on all connections.
    swallows: bool,
    /// On connections with a lower number than this they vanish for good.
    dead_below: usize,
    /// Counts cuts: a connection that sees it change is over.
    cuts: usize,
    refuses: bool,
    orders: usize,
    is_over: bool,
}

/// Sees all requests before the server, and returns after how many bytes the reply is cut.
type Inspector = Box<dyn FnMut(&[u8]) -> Option<usize> + Send>;

impl Proxy {
    /// A proxy on a port of its own, before the server on this port of loopback.
    pub fn start(target: u16) -> Self {
        let port = spare_port();
        let listener = StdListener::bind(loopback(port)).expect("a free port");
        let state = Arc::new(State::default());
        let served = state.clone();
        let thread = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(serve(listener, &served));
        });
        let proxy = Self {
            port,
            state,
            thread: Some(thread),
        };
        proxy.lead_to(target);
        proxy
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections clients have made so far; one that was refused is none.
    pub fn made(&self) -> usize {
        self.state.made.load(Ordering::SeqCst)
    }

    /// Lets all bytes take so much longer, each way, from now on.
    pub fn delay(&self, each_way: Duration) {
        self.change(|network| network.delay = each_way);
    }

    /// Keeps all bytes, both ways, until [`resume`](Self::resume), as a network that is down for a while.
    pub fn hold(&self) {
        self.change(|network| network.holds = true);
    }

    pub fn resume(&self) {
        self.change(|network| network.holds = false);
    }

    /// Drops all bytes on all connections until [`heal`](Self::heal), as if the other end had vanished.
    pub fn drop_all(&self) {
        self.change(|network| network.swallows = true);
    }

    /// Passes the bytes of connections that are made from now on. The others stay dead.
    pub fn heal(&self) {
        let made = self.made();
        self.change(|network| {
            network.swallows = false;
            network.dead_below = made;
        });
    }

    /// Leads new connections to the server on another port, as a change in the DNS.
    pub fn lead_to(&self, target: u16) {
        self.change(|network| network.target = target);
    }

    pub fn cut(&self) {
        self.order(|network| network.cuts += 1);
    }

    /// Refuses new connections, as a host without a listener does; open ones go on.
    pub fn refuse(&self) {
        self.order(|network| network.refuses = true);
    }

    pub fn accept(&self) {
        self.order(|network| network.refuses = false);
    }

    /// Resets the connection by which the next request with these bytes in it comes, after so many bytes
    /// of what the server then answers: it has carried out what its client will never know.
    pub fn cut_reply(&self, request: &[u8], after: usize) {
        let mut request = Some(request.to_vec());
        let is_in = |bytes: &[u8], it: &[u8]| bytes.windows(it.len()).any(|some| some == it);
        self.inspect(move |bytes| request.take_if(|it| is_in(bytes, it)).map(|_| after));
    }

    /// Shows all requests to this from now on, before the server has them.
    /// It may cut replies as [`cut_reply`](Self::cut_reply) does.
    pub fn inspect(&self, inspector: impl FnMut(&[u8]) -> Option<usize> + Send + 'static) {
        *self.state.inspector.lock().expect("no panic") = Some(Box::new(inspector));
    }

    pub fn cut_replies(&self) -> usize {
        self.state.cut_replies.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Network)) {
        self.state.network.send_modify(change);
    }

    fn order(&self, change: impl FnOnce(&mut Network)) {
        let mut orders = 0;
        self.change(|network| {
            change(network);
            network.orders += 1;
            orders = network.orders;
        });
        let applied = || self.state.applied.load(Ordering::SeqCst);
        wait_until("the proxy applies it", || applied() >= orders);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|network| network.is_over = true);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the proxy panicked");
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

async fn serve(listener: StdListener, state: &Arc<State>) {
    listener.set_nonblocking(true).expect("an open socket");
    let listener = TcpListener::from_std(listener).expect("a runtime");
    let address = listener.local_addr().expect("a port");
    let (mut listener, mut connections) = (Some(listener), JoinSet::new());
    let (mut network, mut cuts) = (state.network.subscribe(), 0);
    loop {
        let now = network.borrow_and_update().clone();
        if now.is_over {
            return;
        }
        if now.refuses {
            listener = None;
        } else if listener.is_none() {
            listener = Some(until_ok(async || TcpListener::bind(address).await).await);
        }
        if now.cuts != cuts {
            cuts = now.cuts;
            while connections.join_next().await.is_some() {}
        }
        state.applied.store(now.orders, Ordering::SeqCst);
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = network.changed() => {}
            Ok((client, _)) = accepted => {
                let number = state.made.fetch_add(1, Ordering::SeqCst);
                let state = state.clone();
                connections.spawn(async move { pump::connect(client, number, cuts, &state).await });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

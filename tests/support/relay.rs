//! [`Relay`]: stands between a client and a server, and fails as networks do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What becomes of what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// It takes so much longer, each way.
    Slow(Duration),
    /// Nothing arrives on connections that are open, and none of them is closed; new ones are served.
    HalfOpen,
    /// New connections are closed at once, and so are those that are open.
    Closed,
    /// The server's answers are cut off within, and the connection is closed.
    CutReplies,
}

/// Takes connections for a server, on a port of its own.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    weather: watch::Sender<Weather>,
    accepted: AtomicUsize,
    target: watch::Sender<u16>,
}

impl Relay {
    pub(crate) async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            weather: watch::Sender::new(Weather::Fair),
            accepted: AtomicUsize::new(0),
            target: watch::Sender::new(port),
        });
        let task = tokio::spawn(accept(listener, state.clone()));
        Self {
            address,
            state,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub(crate) fn turn(&self, weather: Weather) {
        self.state.weather.send_replace(weather);
    }

    /// From now on, new connections are to another server.
    pub(crate) fn lead_to(&self, port: u16) {
        self.state.target.send_replace(port);
    }

    /// How many connections it was asked for.
    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        state.accepted.fetch_add(1, Ordering::SeqCst);
        let target = *state.target.borrow();
        let mut weather = state.weather.subscribe();
        if *weather.borrow_and_update() == Weather::Closed {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else {
            continue;
        };
        // What is half open are those that were there before.
        let is_new = *weather.borrow() == Weather::HalfOpen;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let replies = carry(from_server, to_client, weather.clone(), is_new, true);
        let calls = carry(from_client, to_server, weather, is_new, false);
        // If either ends, so does the connection.
        connections.spawn(async {
            tokio::select! {
                () = replies => {}
                () = calls => {}
            }
        });
    }
}

/// Until either side closes, or the weather does.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    is_new: bool,
    is_reply: bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count.unwrap_or(0),
            _ = weather.wait_for(|it| *it == Weather::Closed) => 0,
        };
        if count == 0 {
            return;
        }
        let now = *weather.borrow_and_update();
        match now {
            Weather::Slow(delay) => sleep(delay).await,
            Weather::HalfOpen if !is_new => {
                std::future::pending::<()>().await;
            }
            Weather::CutReplies if is_reply => {
                let _ = to.write_all(&buffer[..count / 2]).await;
                return;
            }
            Weather::Closed => return,
            Weather::Fair | Weather::HalfOpen | Weather::CutReplies => {}
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

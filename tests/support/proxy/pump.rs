//! One connection of a [`Proxy`](super::Proxy), from its beginning to its end.

use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Network, State};

type Chunk = (Instant, Vec<u8>);

/// Serves a connection, which was made after so many cuts, until one side closes it, or it is reset.
pub async fn connect(mut client: TcpStream, number: usize, cuts: usize, state: &State) {
    let mut network = state.network.subscribe();
    let target = network.borrow().target;
    let pass = async {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
        // A delay is that of the test, without Nagle's.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let connection = Connection {
            number,
            state,
            allowed: Mutex::default(),
        };
        connection.pass(&mut client, &mut server).await
    };
    let end = tokio::select! {
        end = pass => end,
        _ = network.wait_for(|now| now.cuts != cuts) => Err(io::ErrorKind::ConnectionReset.into()),
    };
    if end.is_err() {
        // What is dropped after this is reset. It may be so already.
        let _ = client.set_zero_linger();
    }
}

struct Connection<'a> {
    number: usize,
    state: &'a State,
    /// How many more bytes of replies may pass, if not all.
    allowed: Mutex<Option<usize>>,
}

impl Connection<'_> {
    async fn pass(&self, client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let requests = self.flow(from_client, to_server, |bytes| {
            let mut inspector = self.state.inspector.lock().expect("no panic");
            if let Some(after) = inspector.as_mut().and_then(|it| it(bytes)) {
                *self.allowed() = Some(after);
            }
            true
        });
        let replies = async {
            let flow = self.flow(from_server, to_client, |bytes| {
                let mut allowed = self.allowed();
                bytes.truncate(allowed.unwrap_or(bytes.len()));
                *allowed = allowed.map(|allowed| allowed - bytes.len());
                *allowed != Some(0)
            });
            let end = flow.await;
            if self.is_dead() {
                // The client does not see the end of the server.
                pending::<()>().await;
            }
            if *self.allowed() == Some(0) {
                self.state.cut_replies.fetch_add(1, Ordering::SeqCst);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            end
        };
        tokio::select! {
            end = requests => end,
            end = replies => end,
        }
    }

    /// Passes bytes on when they are due, until there are no more or `pass` has had enough.
    async fn flow(
        &self,
        mut from: ReadHalf<'_>,
        to: WriteHalf<'_>,
        mut pass: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> io::Result<()> {
        let (send, chunks) = unbounded_channel();
        let read = async move {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = from.read(&mut buffer).await?;
                let mut bytes = buffer[..count].to_vec();
                let goes_on = count > 0 && pass(&mut bytes);
                let due = Instant::now() + self.state.network.borrow().delay;
                // Without a receiver, the connection is over.
                let _ = send.send((due, bytes));
                if !goes_on {
                    return Ok(());
                }
            }
        };
        let (read, written) = tokio::join!(read, self.write(chunks, to));
        read.and(written)
    }

    fn allowed(&self) -> MutexGuard<'_, Option<usize>> {
        self.allowed.lock().expect("no panic")
    }

    fn is_dead(&self) -> bool {
        is_dead(&self.state.network.borrow(), self.number)
    }

    async fn write(
        &self,
        mut chunks: UnboundedReceiver<Chunk>,
        mut to: WriteHalf<'_>,
    ) -> io::Result<()> {
        let mut network: watch::Receiver<_> = self.state.network.subscribe();
        while let Some((due, bytes)) = chunks.recv().await {
            sleep_until(due).await;
            let settled = |now: &Network| !now.holds || is_dead(now, self.number);
            let _ = network.wait_for(settled).await;
            let mut left = &bytes[..];
            while !left.is_empty() && !self.is_dead() {
                left = &left[to.write(left).await?..];
            }
        }
        Ok(())
    }
}

fn is_dead(network: &Network, number: usize) -> bool {
    network.swallows || number < network.dead_below
}

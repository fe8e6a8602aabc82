//! The server that the replicas call: [`Upstream`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tower_throttle::test_util::history::History;

/// An HTTP server that records each arrival and responds after 10 to 30 ms.
pub(crate) struct Upstream {
    address: SocketAddr,
    record: Arc<Record>,
}

struct Record {
    origin: Instant,
    arrivals: Mutex<Vec<Duration>>,
}

impl Upstream {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let record = Arc::new(Record {
            origin: Instant::now(),
            arrivals: Mutex::default(),
        });
        tokio::spawn(accept(listener, record.clone()));
        Ok(Self { address, record })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn arrivals(&self) -> History {
        self.record.lock().iter().copied().collect()
    }

    /// Reports the number of arrivals every two seconds.
    pub(crate) async fn show_progress(&self, expected: u32, log: impl Fn(&str)) -> Infallible {
        let mut tick = tokio::time::interval(Duration::from_secs(2));
        tick.tick().await;
        loop {
            tick.tick().await;
            let arrived = self.record.lock().len();
            log(&format!("{arrived:>7} of {expected} requests have arrived"));
        }
    }
}

impl Record {
    fn stamp(&self) {
        // Reads the clock under the lock, so that the times are in order.
        let mut arrivals = self.lock();
        arrivals.push(self.origin.elapsed());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.arrivals.lock().expect("no panic while recording")
    }
}

async fn accept(listener: TcpListener, record: Arc<Record>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, record.clone()))),
            Err(error) => {
                // Probably out of file descriptors; retry when other connections have been closed.
                eprintln!("the upstream cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, record: Arc<Record>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let answer = service_fn(move |_: Request<Incoming>| {
        record.stamp();
        async {
            let work = Duration::from_millis(rand::random_range(10..=30));
            tokio::time::sleep(work).await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let server = hyper::server::conn::http1::Builder::new();
    server
        .serve_connection(TokioIo::new(stream), answer)
        .await?;
    Ok(())
}

//! [`Upstream`]: remembers each request that arrived, and how it went.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::child::now;

/// Takes requests of a few bytes each, by one connection per process.
///
/// There is nothing else to do for a request than to be stamped, so it arrives when it departs, as nearly as
/// a machine with other things to do allows. The requests of a killed process arrive, too.
#[derive(Debug)]
pub(crate) struct Upstream {
    port: u16,
    arrivals: Arc<Arrivals>,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

#[derive(Debug, Default)]
struct Arrivals {
    all: Mutex<Vec<Arrival>>,
    more: Condvar,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// On the clock of this machine, as is [`departed`](Self::departed).
    pub(crate) at: Duration,
    pub(crate) departed: Duration,
    pub(crate) process: usize,
    pub(crate) key: usize,
}

/// A process' way there.
#[derive(Debug)]
pub(crate) struct Way {
    stream: Mutex<TcpStream>,
    process: usize,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let arrivals = Arc::new(Arrivals::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let accepting = thread::spawn({
            let (arrivals, is_over) = (arrivals.clone(), is_over.clone());
            move || {
                let mut readers = Vec::new();
                for stream in listener.incoming() {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let (stream, arrivals) = (stream.expect("a connection"), arrivals.clone());
                    readers.push(thread::spawn(move || read(stream, &arrivals)));
                }
                readers
            }
        });
        Self {
            port,
            arrivals,
            is_over,
            accepting: Some(accepting),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// All that have arrived so far, and were not taken before.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock())
    }

    /// Waits until those that have arrived are enough; `false` if they are not within that time.
    pub(crate) fn wait_for(&self, within: Duration, enough: impl Fn(&[Arrival]) -> bool) -> bool {
        let deadline = Instant::now() + within;
        let mut all = self.arrivals.lock();
        while !enough(&all) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.arrivals.more.wait_timeout(all, left);
            all = woken.expect("no panic while recording").0;
        }
        true
    }

    /// All arrivals that were not taken. Waits until the senders have ended.
    pub(crate) fn finish(mut self) -> Vec<Arrival> {
        for reader in self.end() {
            reader.join().expect("requests that can be read");
        }
        self.take()
    }

    fn end(&mut self) -> Vec<JoinHandle<()>> {
        self.is_over.store(true, Ordering::SeqCst);
        let Some(accepting) = self.accepting.take() else {
            return Vec::new();
        };
        // Wakes it, so that it sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        accepting.join().expect("connections")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.all.lock().expect("no panic while recording")
    }
}

fn read(mut stream: TcpStream, arrivals: &Arrivals) {
    let mut raw = [0; 24];
    loop {
        match stream.read_exact(&mut raw) {
            Ok(()) => {}
            // Its process has ended, in whatever way.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{error}"),
        }
        let at = now();
        let [process, key, departed] = [0, 8, 16].map(|from| {
            let bytes = raw[from..from + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        });
        arrivals.lock().push(Arrival {
            at,
            departed: Duration::from_micros(departed),
            process: process as usize,
            key: key as usize,
        });
        arrivals.more.notify_all();
    }
}

impl Way {
    pub(crate) fn new(port: u16, process: usize) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("an upstream");
        stream.set_nodelay(true).expect("an open socket");
        Self {
            stream: Mutex::new(stream),
            process,
        }
    }

    /// Sends a request of this key, which departs at this time.
    pub(crate) fn send(&self, key: usize, departed: Duration) {
        let departed = u64::try_from(departed.as_micros()).expect("less than ages");
        let numbers = [self.process as u64, key as u64, departed];
        let raw = numbers.map(u64::to_le_bytes);
        let mut stream = self.stream.lock().expect("no panic while sending");
        stream.write_all(raw.as_flattened()).expect("an upstream");
    }
}

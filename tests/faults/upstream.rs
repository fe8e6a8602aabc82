//! [`Upstream`]: remembers each request that arrived, and how it went.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::prelude::*;
use tempfile::TempDir;

/// Takes requests of a few bytes each, which arrive as soon as they depart. Those of a killed process arrive, too.
#[derive(Debug)]
pub(crate) struct Upstream {
    dir: TempDir,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    reader: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// On the clock of this machine, as is [`departed`](Self::departed).
    pub(crate) at: Duration,
    pub(crate) departed: Duration,
    pub(crate) process: usize,
    pub(crate) key: usize,
    /// The sender chooses its meaning.
    pub(crate) mark: u64,
}

#[derive(Debug)]
pub(crate) struct Sender {
    socket: UnixDatagram,
    process: usize,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let socket = UnixDatagram::bind(dir.path().join("socket")).expect("a new socket");
        let arrivals = Arc::<Mutex<Vec<_>>>::default();
        let recorded = arrivals.clone();
        let reader = thread::spawn(move || {
            let mut raw = [[0; 8]; 4];
            while socket.recv(raw.as_flattened_mut()).expect("a request") > 0 {
                let [process, key, departed, mark] = raw.map(u64::from_le_bytes);
                recorded.lock().expect("no panic").push(Arrival {
                    at: now(),
                    departed: Duration::from_micros(departed),
                    process: process as usize,
                    key: key as usize,
                    mark,
                });
            }
        });
        Self {
            dir,
            arrivals,
            reader,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().expect("no panic")
    }

    /// All that have arrived so far, and were not taken before.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.lock())
    }

    /// Waits until those that have arrived are enough; `false` if they are not within that time.
    pub(crate) fn wait_for(&self, within: Duration, enough: impl Fn(&[Arrival]) -> bool) -> bool {
        let deadline = Instant::now() + within;
        while !enough(&self.lock()) {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// All arrivals that were not taken, once the senders have ended.
    pub(crate) fn finish(self) -> Vec<Arrival> {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.send_to(&[], self.path()).expect("a reader");
        self.reader.join().expect("requests that can be read");
        std::mem::take(&mut *self.arrivals.lock().expect("no panic"))
    }
}

impl Sender {
    pub(crate) fn new(path: &PathBuf, process: usize) -> Self {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(path).expect("an upstream");
        Self { socket, process }
    }

    pub(crate) fn send(&self, key: usize, mark: u64, departed: Duration) {
        let departed = u64::try_from(departed.as_micros()).expect("less than ages");
        let numbers = [self.process as u64, key as u64, departed, mark];
        let raw = numbers.map(u64::to_le_bytes);
        self.socket.send(raw.as_flattened()).expect("an upstream");
    }
}

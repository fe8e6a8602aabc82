//! [`Upstream`]: an HTTP server that records when requests arrive.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tower_throttle::test_util::history::History;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

/// A `wiremock` server on a loopback port.
///
/// `wiremock` has one thread of its own, so a busy test runtime does not delay the record. It records a request after it
/// has read all of it, one after another. On a loaded machine, requests are recorded closer together than they came: a
/// limit that is exact for departures needs a buffer to be exact here.
///
/// Do not pause the clock in a test that uses it: tokio would take the wait for a socket for idleness.
#[derive(Debug)]
pub struct Upstream {
    server: MockServer,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    first: Option<Instant>,
    arrivals: Vec<(Duration, u16)>,
}

/// A status, and headers.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

impl Answer {
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
        }
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

struct Answers<F> {
    answer: F,
    seen: Arc<Mutex<Seen>>,
}

impl Upstream {
    /// Answers everything with 200 at once.
    pub async fn start() -> Self {
        Self::answering(|_| Answer::new(200)).await
    }

    /// Answers each request by its number, from 0.
    pub async fn answering(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::default());
        // The server's own record would keep every request in full.
        let builder = MockServer::builder().disable_request_recording();
        let server = builder.start().await;
        let answers = Answers {
            answer,
            seen: seen.clone(),
        };
        let mock = Mock::given(any()).respond_with(answers);
        mock.mount(&server).await;
        Self { server, seen }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn uri(&self) -> String {
        self.server.uri()
    }

    /// When each request arrived, since the first.
    pub fn arrivals(&self) -> Vec<Duration> {
        lock(&self.seen).arrivals.iter().map(|it| it.0).collect()
    }

    /// When requests arrived that were answered with this status.
    pub fn answered(&self, status: u16) -> Vec<Duration> {
        let seen = lock(&self.seen);
        let answered = seen.arrivals.iter().filter(|it| it.1 == status);
        answered.map(|it| it.0).collect()
    }

    pub fn history(&self) -> History {
        self.arrivals().into_iter().collect()
    }
}

impl<F: Fn(usize) -> Answer + Send + Sync> Respond for Answers<F> {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let mut seen = lock(&self.seen);
        let at = seen.first.get_or_insert_with(Instant::now).elapsed();
        let Answer { status, headers } = (self.answer)(seen.arrivals.len());
        seen.arrivals.push((at, status));
        let answer = ResponseTemplate::new(status);
        headers.into_iter().fold(answer, |answer, (name, value)| {
            answer.insert_header(name, value)
        })
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("no panic while answering")
}

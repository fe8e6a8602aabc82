//! [`Upstream`]: an HTTP server that records when requests arrive.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tower_throttle::test_util::history::History;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

/// A `wiremock` server on a loopback port, with a thread of its own.
///
/// On a loaded machine, requests are recorded closer together than they came: a limit that is exact for departures needs
/// a buffer to be exact here. Do not pause the clock: tokio would take the wait for a socket for idleness.
#[derive(Debug)]
pub struct Upstream {
    server: MockServer,
    arrivals: Arc<Mutex<Vec<Instant>>>,
}

impl Upstream {
    /// Answers everything with 200 at once.
    pub async fn start() -> Self {
        Self::answering(|_| ResponseTemplate::new(200)).await
    }

    /// Answers each request by its number, from 0.
    pub async fn answering(
        answer: impl Fn(usize) -> ResponseTemplate + Send + Sync + 'static,
    ) -> Self {
        let arrivals = Arc::<Mutex<Vec<_>>>::default();
        let recorded = arrivals.clone();
        // The server's own record would keep every request in full.
        let builder = MockServer::builder().disable_request_recording();
        let server = builder.start().await;
        let answers = Mock::given(any()).respond_with(move |_: &Request| {
            let mut arrivals = recorded.lock().expect("no panic while answering");
            arrivals.push(Instant::now());
            answer(arrivals.len() - 1)
        });
        answers.mount(&server).await;
        Self { server, arrivals }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn uri(&self) -> String {
        self.server.uri()
    }

    pub fn history(&self) -> History {
        let arrivals = self.arrivals.lock().expect("no panic while answering");
        arrivals.iter().copied().collect()
    }
}

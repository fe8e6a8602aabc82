//! An upstream with limits of its own: [`Provider`].

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tower_throttle::test_util::history::History;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

/// Answers each request as the closure says, which takes its number, from 0, and the time since the first.
pub(crate) struct Provider {
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
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

impl Answer {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

struct Answers<F> {
    answer: F,
    seen: Arc<Mutex<Seen>>,
}

impl Provider {
    pub(crate) async fn start<F>(answer: F) -> Self
    where
        F: Fn(usize, Duration) -> Answer + Send + Sync + 'static,
    {
        let seen = Arc::new(Mutex::default());
        let builder = MockServer::builder().disable_request_recording();
        let server = builder.start().await;
        let answers = Answers {
            answer,
            seen: seen.clone(),
        };
        Mock::given(any())
            .respond_with(answers)
            .mount(&server)
            .await;
        Self { server, seen }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub(crate) fn uri(&self) -> String {
        self.server.uri()
    }

    /// When each request arrived, since the first.
    pub(crate) fn arrivals(&self) -> Vec<Duration> {
        let seen = lock(&self.seen);
        seen.arrivals.iter().map(|(at, _)| *at).collect()
    }

    /// When requests arrived that were answered with this status.
    pub(crate) fn answered(&self, status: u16) -> Vec<Duration> {
        let seen = lock(&self.seen);
        let answered = seen.arrivals.iter().filter(|(_, it)| *it == status);
        answered.map(|(at, _)| *at).collect()
    }

    pub(crate) fn history(&self) -> History {
        self.arrivals().into_iter().collect()
    }
}

impl<F> Respond for Answers<F>
where
    F: Fn(usize, Duration) -> Answer + Send + Sync,
{
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let mut seen = lock(&self.seen);
        let at = seen.first.get_or_insert_with(Instant::now).elapsed();
        let Answer { status, headers } = (self.answer)(seen.arrivals.len(), at);
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

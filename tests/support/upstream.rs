//! [`Upstream`]: an HTTP server that remembers when each request arrived.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tower_throttle::test_util::history::History;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

/// A `wiremock` server on a loopback port with a [`Recorder`] that takes every request.
///
/// It runs on a thread and a tokio runtime of its own, so a busy or paused test runtime does not
/// delay it. Do not pause the clock in a test that talks to it: tokio would take the wait for a
/// real socket for idleness and jump ahead.
#[derive(Debug)]
pub struct Upstream {
    server: MockServer,
    recorder: Recorder,
}

/// Records each arrival and answers with a template, 200 and empty unless told otherwise.
///
/// **What is recorded.** `wiremock` calls `respond` after it has read the whole request, with a
/// lock held over all mocks and on its one thread, so arrivals are recorded one after another, in
/// the order in which they were handled. A time is when the request was handled, a little after it
/// came in; where requests had to queue for the thread, on a loaded machine, they are recorded
/// closer together than they came. So a limit that is exact for departures needs the policy's
/// buffer to be exact here.
///
/// **A delay holds up nobody else.** `wiremock` sleeps off the template's delay after the lock is
/// released, and each connection is a task. Only a further request on the same HTTP/1 connection
/// waits, as it would anywhere.
#[derive(Debug, Clone)]
pub struct Recorder {
    origin: Instant,
    header: Option<String>,
    answer: ResponseTemplate,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

/// One request as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Since the recorder's origin.
    pub at: Duration,
    pub path: String,
    /// The header that [`Recorder::header`] names, if the request has it.
    pub header: Option<String>,
}

impl Upstream {
    /// Answers everything with 200 at once.
    pub async fn start() -> Self {
        Self::start_with(Recorder::default()).await
    }

    pub async fn start_with(recorder: Recorder) -> Self {
        // The server's own record would keep every request in full.
        let builder = MockServer::builder().disable_request_recording();
        let server = builder.start().await;
        let mock = Mock::given(any()).respond_with(recorder.clone());
        mock.mount(&server).await;
        Self { server, recorder }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn uri(&self) -> String {
        self.server.uri()
    }

    /// Everything that has arrived.
    pub fn history(&self) -> History {
        self.recorder.history()
    }

    /// Everything that has arrived, in the order in which it was handled.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.recorder.arrivals()
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            header: None,
            answer: ResponseTemplate::new(200),
            arrivals: Arc::default(),
        }
    }
}

impl Recorder {
    /// Measures from `origin`, so that departures can be compared with arrivals. An arrival before
    /// it is recorded as at it.
    pub fn origin(mut self, origin: Instant) -> Self {
        self.origin = origin;
        self
    }

    /// Records this header of each request, too.
    pub fn header(mut self, name: &str) -> Self {
        self.header = Some(name.to_owned());
        self
    }

    /// Answers so much later.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.answer = self.answer.set_delay(delay);
        self
    }

    /// Answers with this instead, delay included.
    pub fn answer(mut self, answer: ResponseTemplate) -> Self {
        self.answer = answer;
        self
    }

    pub fn history(&self) -> History {
        self.lock().iter().map(|arrival| arrival.at).collect()
    }

    /// The arrivals of which `which` is true, such as those of one path.
    pub fn history_where(&self, which: impl Fn(&Arrival) -> bool) -> History {
        let arrivals = self.lock();
        let wanted = arrivals.iter().filter(|arrival| which(arrival));
        wanted.map(|arrival| arrival.at).collect()
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().expect("no panic while recording")
    }
}

impl Respond for Recorder {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let at = self.origin.elapsed();
        let name = self.header.as_deref();
        let header = name.and_then(|name| request.headers.get(name));
        self.lock().push(Arrival {
            at,
            path: request.url.path().to_owned(),
            header: header.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        });
        self.answer.clone()
    }
}

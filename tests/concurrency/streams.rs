//! [`Streams`]: an upstream that streams bodies, and records which requests are in progress.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{PATIENCE, SECOND};
use support::child::now;
use support::progress::at_once;

/// The time between two parts of a body.
const PART: Duration = Duration::from_millis(25);

/// Serves until it is dropped. `/MILLIS` streams a body for so long, and `/fails` breaks it off.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) base: String,
    works: Works,
    task: JoinHandle<()>,
}

/// When each request began, and ended.
type Works = Arc<Mutex<Vec<(Duration, Duration)>>>;

/// A request in progress, until its body has ended or its connection is lost.
struct Work {
    works: Works,
    number: usize,
}

impl Work {
    fn begin(works: &Works) -> Self {
        let works = works.clone();
        let mut all = works.lock().expect("no panic");
        all.push((now(), Duration::MAX));
        let number = all.len() - 1;
        drop(all);
        Self { works, number }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.works.lock().expect("no panic")[self.number].1 = now();
    }
}

impl Streams {
    pub(super) async fn start() -> Self {
        let works = Works::default();
        let app = Router::new()
            .route("/fails", get(fails))
            .route("/sized", get(async || ([("x-name", "value")], "sized")))
            .route("/empty", get(async || ()))
            .route("/moved", get(async || Redirect::temporary("/sized")))
            .route("/{millis}", get(streamed))
            .with_state(works.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("a server");
        });
        Self {
            base: format!("http://{address}"),
            works,
            task,
        }
    }

    /// The begin and the end of each request. One that is in progress has not ended.
    pub(super) fn works(&self) -> Vec<(Duration, Duration)> {
        self.works.lock().expect("no panic").clone()
    }

    pub(super) async fn wait_for(&self, count: usize) {
        let begun = Instant::now();
        while at_once(&self.works(), now()) != count {
            assert!(begun.elapsed() < PATIENCE, "not {count} are in progress");
            sleep(SECOND / 200).await;
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A body that ends after so long.
pub(super) fn body(lasts: Duration) -> Body {
    streaming(Instant::now() + lasts, ())
}

/// The state is dropped when the body has ended.
fn streaming<T: Send + 'static>(until: Instant, state: T) -> Body {
    let parts = stream::unfold(state, move |state| async move {
        sleep(PART).await;
        (Instant::now() < until).then_some((Ok::<_, Infallible>(Bytes::from("part")), state))
    });
    Body::from_stream(parts)
}

async fn streamed(State(works): State<Works>, Path(millis): Path<u64>) -> Response {
    let until = Instant::now() + Duration::from_millis(millis);
    streaming(until, Work::begin(&works)).into_response()
}

async fn fails() -> Body {
    let parts = stream::unfold(0, |nth| async move {
        sleep(PART).await;
        let part = match nth {
            0 => Ok(Bytes::from("part")),
            _ => Err(io::Error::other("it fails")),
        };
        Some((part, nth + 1))
    });
    Body::from_stream(parts)
}

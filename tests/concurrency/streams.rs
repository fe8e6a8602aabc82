//! An upstream that streams bodies.

use std::future::pending;

use axum::extract::Path;
use axum::response::Redirect;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::Semaphore;

use crate::axum_inbound::server::serve;
use crate::prelude::*;

/// The time between two parts of a body.
const PART: Duration = Duration::from_millis(25);

/// Starts a server: `/MILLIS` streams a body for so long, `/fails` breaks it off, and `/silent` does not answer.
/// Returns its URL, without a slash at the end.
pub(super) async fn start() -> String {
    let app = Router::new()
        .route("/fails", get(fails))
        .route("/sized", get(async || ([("x-name", "value")], "sized")))
        .route("/empty", get(async || ()))
        .route("/silent", get(async || pending::<()>().await))
        .route("/moved", get(async || Redirect::temporary("/sized")))
        .route("/{millis}", get(streamed));
    format!("http://{}", serve(app).await)
}

pub(super) fn body(lasts: Duration) -> Body {
    let until = Instant::now() + lasts;
    let parts = stream::unfold((), move |()| async move {
        sleep(PART).await;
        (Instant::now() < until).then_some((Ok::<_, Infallible>(Bytes::from("part")), ()))
    });
    Body::from_stream(parts)
}

/// A body that ends once the semaphore has a permit.
pub(super) fn body_until(ends: Arc<Semaphore>) -> Body {
    let parts = stream::unfold(ends, async |ends| {
        sleep(PART).await;
        let goes_on = ends.try_acquire().is_err();
        goes_on.then_some((Ok::<_, Infallible>(Bytes::from("part")), ends))
    });
    Body::from_stream(parts)
}

pub(super) async fn streamed(Path(millis): Path<u64>) -> Body {
    body(Duration::from_millis(millis))
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

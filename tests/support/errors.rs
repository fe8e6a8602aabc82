//! Texts of errors and panics.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt::{Debug, Write as _};
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_throttle::Error;
use tower_throttle::store::StoreError;

/// Within which all must be over that is bounded at all, on a machine that does many other things.
pub const PATIENCE: Duration = Duration::from_secs(15);

pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    let ended = timeout(PATIENCE, future).await;
    ended.expect("an end to it, as it is bounded")
}

/// Waits until something is so, which a busy machine may delay.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let never = format!("never: {what}");
    until_ok(async || is_so().await.then_some(()).ok_or(&never)).await;
}

/// The result of what fails for a while, which may be long on a busy machine.
pub async fn until_ok<T, E: Debug>(mut attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// The store's error in one of the limiter's, which says nothing else.
pub fn store_error(error: &Error) -> &StoreError {
    assert!(error.is_store(), "{error:?}");
    assert_eq!(error.wait(), None);
    let source = error.source().expect("a source");
    source.downcast_ref().expect("the store's error")
}

/// All that an error and its sources say in any way.
pub fn everything(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        writeln!(text, "{error}\n{error:?}\n{error:#?}").expect("room");
        next = error.source();
    }
    text
}

/// Each message of the chain says something, and ours do not repeat what the one below says.
pub fn assert_readable(error: &(dyn StdError + 'static)) {
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        let message = error.to_string();
        assert!(!message.is_empty(), "{error:?}");
        if let Some(source) = next.filter(|_| error.is::<Error>() || error.is::<StoreError>()) {
            let repeats = message.contains(&source.to_string());
            assert!(!repeats, "{message}: {source}");
        }
    }
}

pub fn panic_text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .unwrap_or(&"a panic")
            .to_string(),
    }
}

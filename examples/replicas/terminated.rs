//! The signal to end: [`terminated`].

use std::io;

/// Resolves when this process receives SIGTERM.
#[cfg(unix)]
pub(crate) async fn terminated() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}

#[cfg(not(unix))]
pub(crate) async fn terminated() -> io::Result<()> {
    std::future::pending().await
}

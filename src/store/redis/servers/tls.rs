//! What TLS needs before the first connection.

use redis::Client;

#[cfg(feature = "redis-tls")]
mod provider {
    use rustls::crypto::{CryptoProvider, ring};

    /// Makes *ring* the cryptography provider of this process, unless there is one. Without a default, rustls panics
    /// if dependencies have enabled several.
    pub(super) fn install() {
        if CryptoProvider::get_default().is_none() {
            // Another thread may have installed one by now, which is as good.
            let _ = ring::default_provider().install_default();
        }
    }
}

#[cfg(not(feature = "redis-tls"))]
mod provider {
    pub(super) fn install() {}
}

/// Prepares for clients that do not show whether they use TLS.
#[cfg(feature = "redis-sentinel")]
pub(crate) fn prepare_any() {
    provider::install();
}

/// Prepares for these clients, if they use TLS.
pub(crate) fn prepare<'a>(clients: impl IntoIterator<Item = &'a Client>) {
    let is_tls = |client: &Client| {
        let info = client.get_connection_info();
        matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })
    };
    if clients.into_iter().any(is_tls) {
        provider::install();
    }
}

//! What TLS needs before the first connection.

use redis::Client;

#[cfg(feature = "redis-tls")]
mod provider {
    use rustls::crypto::{CryptoProvider, ring};

    /// Makes *ring* do the cryptography of this process, unless something else does. Without that, rustls would
    /// panic where several may, as dependencies have brought them in.
    pub(super) fn settle() {
        if CryptoProvider::get_default().is_none() {
            // Somebody else may have been faster, which is as good.
            let _ = ring::default_provider().install_default();
        }
    }
}

#[cfg(not(feature = "redis-tls"))]
mod provider {
    pub(super) fn settle() {}
}

/// Prepares for clients of which nobody can tell.
#[cfg(feature = "redis-sentinel")]
pub(super) fn prepare_any() {
    provider::settle();
}

/// Prepares for these clients, if they use TLS.
pub(super) fn prepare<'a>(clients: impl IntoIterator<Item = &'a Client>) {
    let is_tls = |client: &Client| {
        let info = client.get_connection_info();
        matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })
    };
    if clients.into_iter().any(is_tls) {
        provider::settle();
    }
}

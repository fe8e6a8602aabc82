//! What TLS needs before the first connection.

/// Makes *ring* the cryptography provider of this process, unless there is one. Without a default, rustls panics
/// if dependencies have enabled several.
#[cfg(feature = "redis-tls")]
pub(super) fn prepare() {
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one by now, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

#[cfg(not(feature = "redis-tls"))]
pub(super) fn prepare() {}

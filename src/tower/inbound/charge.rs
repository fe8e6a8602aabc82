//! Which requests count: [`Charge`].

use http::Response;

/// Says, from the response, whether the request counts.
///
/// Closures do: see [`InboundLayer::charge_when`](super::InboundLayer::charge_when).
pub trait Charge<B> {
    /// Whether a request counts that is answered so.
    fn counts(&self, response: &Response<B>) -> bool;
}

impl<B, F: Fn(&Response<B>) -> bool> Charge<B> for F {
    fn counts(&self, response: &Response<B>) -> bool {
        self(response)
    }
}

/// Every request counts. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryRequest;

impl<B> Charge<B> for EveryRequest {
    fn counts(&self, _: &Response<B>) -> bool {
        true
    }
}

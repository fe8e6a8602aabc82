//! Requests with a cost of their own: [`Costed`].

use crate::key::{Extracted, KeyExtractor};
use crate::limiter::Limiter;

/// A key extractor with a function for the cost; made by [`ThrottleLayer::cost`](crate::ThrottleLayer::cost) and
/// [`InboundLayer::cost`](super::inbound::InboundLayer::cost).
#[derive(Debug, Clone)]
pub struct Costed<K, C> {
    pub(super) limiter: Limiter,
    pub(super) key: K,
    pub(super) cost: C,
}

impl<Q, K: KeyExtractor<Q>, C: Fn(&Q) -> u32> KeyExtractor<Q> for Costed<K, C> {
    fn extract(&self, request: &Q) -> Extracted {
        let extracted = self.key.extract(request);
        self.limiter.with_cost(extracted, || (self.cost)(request))
    }

    fn challenge(&self, request: &Q) -> Option<&'static str> {
        self.key.challenge(request)
    }
}

//! Requests with a cost of their own: [`Costed`].

use crate::cost::Cost;
use crate::key::{Extracted, KeyExtractor};

/// A key extractor with a function for the cost; made by [`ThrottleLayer::cost`](crate::ThrottleLayer::cost) and
/// [`InboundLayer::cost`](super::inbound::InboundLayer::cost).
#[derive(Debug, Clone)]
pub struct Costed<K, C> {
    key: K,
    cost: C,
}

impl<K, C> Costed<K, C> {
    pub(super) fn new(key: K, cost: C) -> Self {
        Self { key, cost }
    }
}

impl<Q, K, C, W> KeyExtractor<Q> for Costed<K, C>
where
    K: KeyExtractor<Q>,
    C: Fn(&Q) -> W,
    W: Into<Cost>,
{
    fn extract(&self, request: &Q) -> Extracted {
        self.key.extract(request)
    }

    fn challenge(&self, request: &Q) -> Option<&'static str> {
        self.key.challenge(request)
    }

    fn cost(&self, request: &Q) -> Option<Cost> {
        Some((self.cost)(request).into())
    }
}

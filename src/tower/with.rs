//! Requests with options of their own: [`With`].

use crate::key::{Extracted, KeyExtractor};
use crate::options::RequestOptions;

/// A key extractor with a function for the options of requests; made by the methods of
/// [`ThrottleLayer`](crate::ThrottleLayer) that take one, such as
/// [`cost`](crate::ThrottleLayer::cost).
#[derive(Debug, Clone)]
pub struct With<K, F> {
    key: K,
    set: F,
}

impl<K, F> With<K, F> {
    pub(super) fn new(key: K, set: F) -> Self {
        Self { key, set }
    }
}

impl<Q, K, F> KeyExtractor<Q> for With<K, F>
where
    K: KeyExtractor<Q>,
    F: Fn(&Q) -> RequestOptions,
{
    fn extract(&self, request: &Q) -> Extracted {
        self.key.extract(request)
    }

    fn challenge(&self, request: &Q) -> Option<&'static str> {
        self.key.challenge(request)
    }

    fn options(&self, request: &Q) -> RequestOptions {
        self.key.options(request).or((self.set)(request))
    }
}

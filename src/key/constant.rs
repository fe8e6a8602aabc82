use super::{Extracted, Key, KeyExtractor};

/// Gives every request the same key, so that all of them spend one quota.
///
/// It is for an upstream that counts everything together, and for a part of a joined key that does not
/// depend on the request, such as the account that it is sent for. It takes requests of any type.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let everything = key::constant("github");
/// assert_eq!(everything.extract(&"any request"), Extracted::Key("github".into()));
/// ```
pub fn constant(text: impl Into<Key>) -> Constant {
    Constant { key: text.into() }
}

/// Gives every request the same key; made by [`constant`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct Constant {
    key: Key,
}

impl<R> KeyExtractor<R> for Constant {
    fn extract(&self, _: &R) -> Extracted {
        Extracted::Key(self.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_every_type_share_the_key() {
        let long = "\0{a}\n\u{e9}".repeat(10_000);
        for text in ["all", long.as_str()] {
            let all = constant(text);
            assert_eq!(all.extract(&1), Extracted::Key(text.into()));
            assert_eq!(
                all.extract(&http::Request::new(())),
                Extracted::Key(text.into())
            );
        }
    }
}

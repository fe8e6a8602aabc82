//! Extractors made of others: [`join`] and [`With`].

use ecow::EcoString;

use super::{Extracted, Key, KeyExtractor, NoKey, NoKeyCause, Ruled};
use crate::cost::RequestOptions;

macro_rules! impl_for_tuple {
    ($($extractor:ident $part:ident),+) => {
        impl<R, $($extractor),+> KeyExtractor<R> for ($($extractor,)+)
        where
            $($extractor: KeyExtractor<R>),+
        {
            fn extract(&self, request: &R) -> Extracted {
                let ($($part,)+) = self;
                join([$($part.extract(request)),+])
            }

            fn options(&self, request: &R) -> RequestOptions {
                let ($($part,)+) = self;
                RequestOptions::default()$(.or($part.options(request)))+
            }
        }
    };
}

impl_for_tuple!(A a, B b);
impl_for_tuple!(A a, B b, C c);
impl_for_tuple!(A a, B b, C c, D d);

/// A key extractor with a function for the options of requests; made by the methods of
/// [`ThrottleLayer`](crate::ThrottleLayer) that take one, such as
/// [`cost`](crate::ThrottleLayer::cost).
#[derive(Debug, Clone)]
pub struct With<K, F> {
    pub(crate) key: K,
    pub(crate) set: F,
}

impl<Q, K, F> KeyExtractor<Q> for With<K, F>
where
    K: KeyExtractor<Q>,
    F: Fn(&Q) -> RequestOptions,
{
    fn extract(&self, request: &Q) -> Extracted {
        self.key.extract(request)
    }

    fn options(&self, request: &Q) -> RequestOptions {
        (self.set)(request).or(self.key.options(request))
    }
}

/// Joins the keys of all parts by `|`, as [`KeyExtractor`] documents for tuples.
pub(crate) fn join(parts: impl IntoIterator<Item = Extracted>) -> Extracted {
    let mut joined = EcoString::new();
    let (mut is_exempt, mut by_rule) = (false, None);
    let mut refused: Option<NoKey> = None;
    for (index, part) in parts.into_iter().enumerate() {
        let key = match part {
            Extracted::Key(key) => Ok(key),
            Extracted::Refused(no_key) => Err(no_key),
            Extracted::Exempt => {
                is_exempt = true;
                continue;
            }
            Extracted::Ruled(ruled) => {
                let key = ruled.key.clone();
                by_rule.get_or_insert(ruled);
                key
            }
        };
        let no_key = match key {
            Ok(key) if !key.as_str().is_empty() => {
                if index > 0 {
                    joined.push('|');
                }
                for c in key.as_str().chars() {
                    // Only separators are left without a backslash, so that different parts never give the same key.
                    if matches!(c, '|' | '\\') {
                        joined.push('\\');
                    }
                    joined.push(c);
                }
                continue;
            }
            Ok(_) => "a part of the request's key is empty".into(),
            Err(no_key) => no_key,
        };
        // A credential may be missing, too, or the server may not be set up.
        let is_plain = |it: &NoKey| it.cause == NoKeyCause::Request;
        if (refused.as_ref()).is_none_or(|it| is_plain(it) && !is_plain(&no_key)) {
            refused = Some(no_key);
        }
    }
    let key = refused.map_or(Ok(Key(joined)), Err);
    match (key, by_rule) {
        (Ok(_), _) if is_exempt => Extracted::Exempt,
        (key, Some(ruled)) => Extracted::Ruled(Ruled { key, ..ruled }),
        (Ok(key), None) => Extracted::Key(key),
        (Err(no_key), None) => Extracted::Refused(no_key),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::constant;

    #[test]
    fn two_to_four_parts_of_any_kind_are_joined() {
        let (a, closure) = (constant("a|"), |request: &u32| request.to_string());
        let key = |text: &str| Extracted::Key(text.into());
        assert_eq!((a.clone(), closure).extract(&1), key(r"a\||1"));
        let three = (a.clone(), constant("b\\"), closure);
        assert_eq!(three.extract(&1), key(r"a\||b\\|1"));
        let four = (a.clone(), a, closure, constant("\n\0{c}\u{e9}"));
        assert_eq!(four.extract(&1), key("a\\||a\\||1|\n\0{c}\u{e9}"));
    }

    #[test]
    fn a_refused_part_refuses_and_an_exempt_part_exempts() {
        let [key, exempt] = [|| Extracted::from("a"), || Extracted::Exempt];
        let refused = || Extracted::Refused("why".into());
        let empty = || Extracted::Refused("a part of the request's key is empty".into());
        let unset = || {
            Extracted::Refused(NoKey {
                reason: "no address".into(),
                cause: NoKeyCause::Server,
            })
        };
        for (parts, expected) in [
            ([key(), exempt()], exempt()),
            ([exempt(), key()], exempt()),
            ([refused(), exempt()], refused()),
            ([exempt(), refused()], refused()),
            ([refused(), "".into()], refused()),
            (["".into(), refused()], empty()),
            ([exempt(), "".into()], empty()),
            ([refused(), unset()], unset()),
            ([unset(), refused()], unset()),
        ] {
            assert_eq!(join(parts), expected);
        }
    }

    proptest! {
        #[test]
        fn different_parts_have_different_keys(
            a in prop::collection::vec("[|\\\\a\0{}\u{e9}]{1,3}", 2..4),
            b in prop::collection::vec("[|\\\\a\0{}\u{e9}]{1,3}", 2..4),
        ) {
            let joined = |parts: &[String]| join(parts.iter().map(|it| it.as_str().into()));
            prop_assert_eq!(a == b, joined(&a) == joined(&b));
        }
    }
}

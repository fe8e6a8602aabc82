//! Keys of several parts: [`join`].

use smol_str::SmolStrBuilder;

use super::{Extracted, Key, KeyExtractor, Ruled};

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
        }
    };
}

impl_for_tuple!(A a, B b);
impl_for_tuple!(A a, B b, C c);
impl_for_tuple!(A a, B b, C c, D d);

/// Joins the keys of all parts by `|`, as [`KeyExtractor`] documents for tuples.
pub(crate) fn join(parts: impl IntoIterator<Item = Extracted>) -> Extracted {
    let mut joined = SmolStrBuilder::new();
    let mut is_exempt = false;
    let mut by_rule = None;
    for (index, part) in parts.into_iter().enumerate() {
        let key = match part {
            Extracted::Key(key) => key,
            Extracted::Exempt => {
                is_exempt = true;
                continue;
            }
            Extracted::Refused(_) => return part,
            Extracted::Ruled(ruled) => match ruled.key.clone() {
                Ok(key) => {
                    by_rule.get_or_insert(ruled);
                    key
                }
                Err(_) => return Extracted::Ruled(ruled),
            },
        };
        if key.as_str().is_empty() {
            return Extracted::Refused("a part of the request's key is empty".into());
        }
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
    }
    let key = Key(joined.finish());
    match by_rule {
        _ if is_exempt => Extracted::Exempt,
        Some(ruled) => Extracted::Ruled(Ruled {
            key: Ok(key),
            ..ruled
        }),
        None => Extracted::Key(key),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;
    use crate::key::{constant, host, route};

    fn joined<const N: usize>(parts: [&str; N]) -> Key {
        match join(parts.map(Extracted::from)) {
            Extracted::Key(key) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_are_joined_readably() {
        let extractor = (host(), route(["GET /repos/{owner}/{repo}"]).unwrap());
        let request = Request::get("https://api.example.com/repos/a/b")
            .body(())
            .unwrap();
        let expected = "api.example.com|GET /repos/{owner}/{repo}";
        assert_eq!(extractor.extract(&request), Extracted::Key(expected.into()));
    }

    #[test]
    fn two_to_four_parts_of_any_kind_are_joined() {
        let closure = |request: &u32| request.to_string();
        assert_eq!(
            (constant("a"), closure).extract(&1),
            Extracted::Key("a|1".into())
        );
        assert_eq!(
            (constant("a"), closure, closure).extract(&1),
            Extracted::Key("a|1|1".into())
        );
        let four = (constant("a"), constant("b"), constant("c"), closure);
        assert_eq!(four.extract(&1), Extracted::Key("a|b|c|1".into()));
    }

    #[test]
    fn the_place_of_a_separator_is_never_in_doubt() {
        assert_eq!(joined(["a|b", "c"]).as_str(), "a\\|b|c");
        assert_eq!(joined(["a", "b|c"]).as_str(), "a|b\\|c");
        assert_eq!(joined(["a\\", "b"]).as_str(), "a\\\\|b");
        assert_eq!(
            joined(["a\\|", "\n\0{b}\u{e9}"]).as_str(),
            "a\\\\\\||\n\0{b}\u{e9}"
        );
        let nested = ((constant("a"), constant("b")), constant("c")).extract(&());
        assert_ne!(
            nested,
            (constant("a"), constant("b"), constant("c")).extract(&())
        );
        let long = "|".repeat(100 * 1024);
        assert_eq!(
            joined([long.as_str(), "b"]).as_str().len(),
            2 * long.len() + 2
        );
    }

    #[test]
    fn a_refused_part_refuses_and_an_exempt_part_exempts() {
        let key = || Extracted::from("a");
        let refused = || Extracted::Refused("why".into());
        let cases = [
            ([key(), Extracted::Exempt], Extracted::Exempt),
            ([Extracted::Exempt, key()], Extracted::Exempt),
            ([key(), refused()], refused()),
            ([refused(), Extracted::Exempt], refused()),
            ([Extracted::Exempt, refused()], refused()),
            ([refused(), Extracted::Refused("second".into())], refused()),
        ];
        for (parts, expected) in cases {
            assert_eq!(join(parts), expected);
        }
    }

    #[test]
    fn an_empty_part_refuses() {
        let refused = Extracted::Refused("a part of the request's key is empty".into());
        for parts in [["", "a"], ["a", ""], ["", ""]] {
            assert_eq!(join(parts.map(Extracted::from)), refused);
        }
        assert_eq!(join([Extracted::Exempt, "".into()]), refused);
    }

    proptest! {
        #[test]
        fn different_parts_have_different_keys(
            a in prop::array::uniform2("[|\\\\a\0{}\u{e9}]{1,3}"),
            b in prop::array::uniform2("[|\\\\a\0{}\u{e9}]{1,3}"),
            c in prop::array::uniform3("[|\\\\a]{1,2}"),
        ) {
            let [a, b] = [&a, &b].map(|parts| parts.each_ref().map(String::as_str));
            prop_assert_eq!(a == b, joined(a) == joined(b));
            prop_assert_ne!(joined(a), joined(c.each_ref().map(String::as_str)));
        }
    }
}

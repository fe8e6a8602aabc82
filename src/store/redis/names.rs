//! The names of values: `PREFIX:{KEY}` and `PREFIX:{KEY}:NAME`.

use std::borrow::Cow;

use percent_encoding::{percent_decode_str, percent_encode_byte};

use crate::key::{Key, sha256};
use crate::policy::name_problem;

/// Longer keys are hashed.
const LONGEST: usize = 64;

/// The name of the value of a key with this [tag](tag) under a policy of this name.
pub(super) fn of(prefix: &str, tag: &str, policy: Option<&str>) -> String {
    match policy {
        None => [prefix, ":{", tag, "}"].concat(),
        Some(policy) => [prefix, ":{", tag, "}:", policy].concat(),
    }
}

/// The tag and the name of the policy, from the name of a value; `None` for other names.
pub(super) fn parse<'a>(prefix: &str, name: &'a str) -> Option<(&'a str, Option<&'a str>)> {
    let rest = name.strip_prefix(prefix)?.strip_prefix(":{")?;
    let (tag, rest) = rest.split_once('}')?;
    let is_tag = !tag.is_empty() && tag.bytes().all(|byte| is_plain(byte) || byte == b'%');
    let policy = match rest {
        "" => None,
        _ => Some(rest.strip_prefix(':')?),
    };
    let is_name = |name: &str| name_problem(name).is_none();
    (is_tag && policy.is_none_or(is_name)).then_some((tag, policy))
}

/// A pattern that matches the names of all values, or of those with this tag.
pub(super) fn pattern(prefix: &str, tag: Option<&str>) -> String {
    let escape = |char| "*?[]^\\".contains(char).then_some('\\');
    let prefix = prefix
        .chars()
        .flat_map(|it| escape(it).into_iter().chain([it]));
    prefix.collect::<String>() + ":{" + tag.unwrap_or("*") + "}*"
}

/// The key of a tag; `None` for a digest.
pub(super) fn key_of(tag_of_key: &str) -> Option<Key> {
    if tag_of_key == "%" {
        return Some(Key::new(""));
    }
    let key = percent_decode_str(tag_of_key).decode_utf8().ok()?;
    (tag(&key) == tag_of_key).then(|| Key::new(key))
}

/// The text of a key between the braces. Different keys have different tags: a percent sign is followed by two digits
/// of an encoded byte, by the digest of a long key, or by nothing for the empty key.
pub(super) fn tag(key: &str) -> Cow<'_, str> {
    if key.is_empty() {
        // Empty braces are not a hash tag.
        return Cow::Borrowed("%");
    }
    if key.len() <= LONGEST && key.bytes().all(is_plain) {
        return Cow::Borrowed(key);
    }
    let mut tag = String::with_capacity(LONGEST);
    for &byte in key.as_bytes() {
        match is_plain(byte) {
            true => tag.push(char::from(byte)),
            false => tag.push_str(percent_encode_byte(byte)),
        }
        if tag.len() > LONGEST {
            let [first, second] = sha256(key.as_bytes());
            return Cow::Owned(format!("%sha256:{first:032X}{second:032X}"));
        }
    }
    Cow::Owned(tag)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~' | b':' | b'/' | b'@')
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_leads_back_to_its_key_and_policy(
            key in "\\PC{0,40}|[a-z/]{60,70}|[{}%* \\r\\n]{1,5}",
            prefix in "[!-z|~]{1,20}",
            policy in option::of("[!-z|~]{1,20}"),
        ) {
            let name = of(&prefix, &tag(&key), policy.as_deref());
            prop_assert!(name.is_ascii() && !name.contains([' ', '\r', '\n']));
            let (found, named) = parse(&prefix, &name).expect("a name");
            prop_assert_eq!(found, &*tag(&key));
            prop_assert_eq!(named, policy.as_deref());
            prop_assert!(found.starts_with("%sha256:") || key_of(found) == Some(Key::new(&key)));
        }
    }

    #[test]
    fn other_names_are_ignored() {
        let names = "throttle:created|throttle:created:{1203}|throttle:{}|throttle:{a b}|\
            throttle:{a}b|throttle:{a}:|throttle:{a}:{b}|throttles:{a}|{a}";
        for name in names.split('|') {
            assert_eq!(parse("throttle", name), None, "{name}");
        }
        for tag in ["%2", "%zz", "%61", "a%FF", &format!("%sha256:{:064}", 0)] {
            assert_eq!(key_of(tag), None, "{tag}");
        }
    }

    #[test]
    fn a_pattern_matches_the_prefix_literally() {
        assert_eq!(pattern("a[b]*?", None), r"a\[b\]\*\?:{*}*");
        assert_eq!(pattern("throttle", Some("a/b")), "throttle:{a/b}*");
    }

    #[test]
    fn ordinary_keys_stay_readable_and_long_ones_are_hashed() {
        assert_eq!(tag("api.example.com:8443"), "api.example.com:8443");
        assert_eq!(tag("GET /repos/{owner}"), "GET%20/repos/%7Bowner%7D");
        assert_eq!(tag(&"x".repeat(64)), "x".repeat(64));
        let [one, other] = [65, 66].map(|length| tag(&"x".repeat(length)).into_owned());
        assert!(one.starts_with("%sha256:") && one.len() == "%sha256:".len() + 64);
        assert!(one != other && tag(&one) != one);
    }
}

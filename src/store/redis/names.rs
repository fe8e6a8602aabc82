//! The names of Redis keys, there and back.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::key::Key;
use crate::policy::Policy;

/// The longest key that stands in a name as it is.
const LONGEST: usize = 64;

/// The names of what is kept for one key: that of what stands aside, then that of each quota's state.
#[derive(Clone)]
pub(super) struct Names(SmallVec<[String; 3]>);

impl Names {
    pub(super) fn all(&self) -> &[String] {
        &self.0
    }

    pub(super) fn aside(&self) -> &str {
        &self.0[0]
    }

    pub(super) fn states(&self) -> &[String] {
        &self.0[1..]
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

pub(super) fn of(prefix: &str, policy: &Policy, key: &Key) -> Names {
    of_tag(prefix, policy, &tag(key.as_str()))
}

/// The same, of a key that has this between its braces.
pub(super) fn of_tag(prefix: &str, policy: &Policy, tag: &str) -> Names {
    const ASIDE: &str = ":aside";
    let parts = [prefix, ":{", tag, "}:", policy.id()];
    let length = parts.iter().map(|part| part.len()).sum::<usize>() + ASIDE.len();
    let mut base = String::with_capacity(length);
    parts.iter().for_each(|part| base.push_str(part));
    let mut aside = String::with_capacity(length);
    aside.push_str(&base);
    aside.push_str(ASIDE);
    let mut names = SmallVec::new();
    names.push(aside);
    match policy.rules().len() {
        1 => names.push(base),
        count => names.extend((0..count).map(|place| format!("{base}:{place}"))),
    }
    Names(names)
}

/// The name of what tells since when a store, or what holds the keys of this tag, knows of everything.
pub(super) fn born(prefix: &str, tag: Option<String>) -> String {
    match tag {
        None => format!("{prefix}:born"),
        Some(tag) => format!("{prefix}:{{{tag}}}:born"),
    }
}

/// A name that has the key between its braces, as all of its names do.
pub(super) fn tagged(prefix: &str, key: &Key) -> String {
    format!("{prefix}:{{{}}}", tag(key.as_str()))
}

/// What the names match of all keys, or of those that have this between their braces.
pub(super) fn pattern(prefix: &str, tag: Option<&str>) -> String {
    let mut pattern = String::with_capacity(prefix.len() + LONGEST);
    for char in prefix.chars() {
        if "*?[]^\\".contains(char) {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern + ":{" + tag.unwrap_or("*") + "}:*"
}

/// What a name has between its braces, and the id of the policy whose state it names; `None` of all other names.
///
/// No id ends as what stands behind it does: each of its quotas has a slash.
pub(super) fn parse<'a>(prefix: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    let behind = name.strip_prefix(prefix)?.strip_prefix(":{")?;
    let (tag, behind) = behind.split_once("}:")?;
    let id = match behind.rsplit_once(':') {
        Some((id, last)) if last == "aside" || last.parse::<u8>().is_ok() => id,
        _ => behind,
    };
    let is_tag = !tag.is_empty() && tag.bytes().all(|byte| is_plain(byte) || byte == b'%');
    (is_tag && id.contains('/')).then_some((tag, id))
}

/// The key that has this between its braces, unless that is a digest.
pub(super) fn key_of(tag_of_key: &str) -> Option<Key> {
    if tag_of_key == "%" {
        return Some(Key::new(""));
    }
    let mut parts = tag_of_key.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, plain) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(plain.as_bytes());
    }
    let key = String::from_utf8(bytes).ok()?;
    (tag(&key) == tag_of_key).then(|| Key::new(key))
}

/// The key as it stands between the braces. No two keys give the same text: a percent sign is
/// followed by two digits of an encoded byte, or else by the digest of a long key, or by nothing.
pub(crate) fn tag(key: &str) -> Cow<'_, str> {
    if key.is_empty() {
        // Empty braces are no hash tag.
        return Cow::Borrowed("%");
    }
    if key.len() <= LONGEST && key.bytes().all(is_plain) {
        return Cow::Borrowed(key);
    }
    let mut tag = String::with_capacity(LONGEST);
    for &byte in key.as_bytes() {
        if tag.len() > LONGEST {
            break;
        }
        if is_plain(byte) {
            tag.push(char::from(byte));
        } else {
            push_hex(&mut tag, "%", &[byte]);
        }
    }
    if tag.len() > LONGEST {
        tag.clear();
        push_hex(&mut tag, "%sha256:", &Sha256::digest(key.as_bytes()));
    }
    Cow::Owned(tag)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_~:/@".contains(&byte)
}

fn push_hex(text: &mut String, before: &str, bytes: &[u8]) {
    text.push_str(before);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(id: &str) -> Policy {
        Policy::from_id(id).unwrap()
    }

    proptest! {
        #[test]
        fn every_name_leads_back_to_its_key_and_policy(
            key in "[ -~\u{e9}]{0,40}|[a-z/]{60,70}",
            prefix in "[!-z|~]{1,20}",
            name in "[!-z|~]{1,20}",
            quotas in prop::sample::select(vec!["10/s", "10/s+5000/h", "7/m-gcra-2"]),
        ) {
            let policy = policy(&format!("{name}:{quotas}"));
            for name in of(&prefix, &policy, &Key::new(&key)).all() {
                let (found, id) = parse(&prefix, name).expect("a name");
                prop_assert_eq!(found, &*tag(&key));
                prop_assert_eq!(id, policy.id());
                prop_assert!(found.starts_with("%sha256:") || key_of(found) == Some(Key::new(&key)));
            }
        }
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in [
            "throttle:born",
            "throttle:{1203}:born",
            "throttle:{}:10/s",
            "throttle:{a b}:10/s",
            "throttle:{a}",
            "throttles:{a}:10/s",
            "{a}:10/s",
        ] {
            assert_eq!(parse("throttle", name), None, "{name}");
        }
        for tag in ["%2", "%zz", "%61", "a%FF", &format!("%sha256:{:064}", 0)] {
            assert_eq!(key_of(tag), None, "{tag}");
        }
    }

    #[test]
    fn a_pattern_means_the_prefix_as_it_is() {
        assert_eq!(pattern("a[b]*?", None), r"a\[b\]\*\?:{*}:*");
        assert_eq!(pattern("throttle", Some("a/b")), "throttle:{a/b}:*");
    }

    #[test]
    fn ordinary_keys_stay_readable() {
        assert_eq!(tag("api.example.com:8443"), "api.example.com:8443");
        assert_eq!(tag("GET /repos/{owner}"), "GET%20/repos/%7Bowner%7D");
    }

    #[test]
    fn no_key_breaks_out_of_the_tag() {
        for key in ["", "}", "{", "a}b{c", "\0", "\r\n", "é", "*?[", "%", " "] {
            let tag = tag(key);
            assert!(
                !tag.contains(['{', '}', '\r', '\n', '\0', ' ', '*']),
                "{key:?} gives {tag:?}"
            );
            assert!(tag.is_ascii() && !tag.is_empty());
        }
    }

    #[test]
    fn long_keys_are_hashed_and_stay_apart() {
        let long = "x".repeat(100 * 1024);
        let longer = format!("{long}x");
        assert_eq!(tag(&long).len(), "%sha256:".len() + 64);
        assert_ne!(tag(&long), tag(&longer));
        assert_ne!(tag(&tag(&long)), tag(&long));
        assert_eq!(tag(&"x".repeat(64)), "x".repeat(64));
        assert!(tag(&"x".repeat(65)).starts_with("%sha256:"));
    }
}

//! The names of Redis keys.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::key::Key;
use crate::policy::Policy;

/// The longest key that stands in a name as it is.
const LONGEST: usize = 64;

/// The names of what is kept for one key: that of what stands aside, then that of each quota's state.
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
    const ASIDE: &str = ":aside";
    let (tag, id) = (tag(key.as_str()), policy.id());
    let parts = [prefix, ":{", &tag, "}:", id];
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

/// The key as it stands between the braces. No two keys give the same text: a percent sign is
/// followed by two digits of an encoded byte, or else by the digest of a long key, or by nothing.
fn tag(key: &str) -> Cow<'_, str> {
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
    use super::*;

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

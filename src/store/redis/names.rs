//! The names of Redis keys, there and back.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::key::Key;

/// The longest key that stands in a name as it is.
const LONGEST: usize = 64;

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

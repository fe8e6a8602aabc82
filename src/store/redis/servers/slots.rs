//! Slots of a cluster: which slot a key has, and which server holds it.

use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};
use hashbrown::HashMap;
use redis::{FromRedisValue as _, RedisError, ServerError, ServerErrorKind, Value};

pub(super) const SLOTS: u16 = 16_384;

/// Host and port.
pub(super) type Address = (String, u16);

/// First slot, last slot, and the address of their primary.
pub(super) type Range = (u16, u16, Address);

/// The slot of a key: that of its hash tag, if it has one. See the [specification].
///
/// [specification]: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
pub(super) fn slot_of(name: &str) -> u16 {
    const SUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    let tail = name.split_once('{').map(|(_, tail)| tail);
    let tag = tail.and_then(|it| it.split_once('}'));
    let hashed = match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => name,
    };
    SUM.checksum(hashed.as_bytes()) % SLOTS
}

/// A hash tag of this slot: the smallest number that is one.
pub(super) fn tag_of(slot: u16) -> String {
    static TAGS: LazyLock<HashMap<u16, u32>> = LazyLock::new(|| {
        let mut tags = HashMap::new();
        for number in 0.. {
            tags.entry(slot_of(&number.to_string())).or_insert(number);
            if tags.len() == usize::from(SLOTS) {
                break;
            }
        }
        tags
    });
    TAGS.get(&slot).copied().unwrap_or_default().to_string()
}

/// Reads an answer to `CLUSTER SLOTS`. A server leaves out its own host if it does not know it; then `host` is
/// used.
pub(super) fn read(answer: Value, host: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else {
        return None;
    };
    let range = |range| {
        let mut parts = Vec::from_redis_value(range).ok()?.into_iter();
        let mut number = || u16::from_redis_value(parts.next()?).ok();
        let (first, last) = (number()?, number()?);
        let mut primary = Vec::from_redis_value(parts.next()?).ok()?.into_iter();
        let named = Option::<String>::from_redis_value(primary.next()?).ok()?;
        let port = u16::from_redis_value(primary.next()?).ok()?;
        let is_valid = first <= last && last < SLOTS;
        let host = known(named.as_deref().unwrap_or_default(), host);
        is_valid.then(|| (first, last, (host.to_owned(), port)))
    };
    ranges.into_iter().map(range).collect()
}

/// A redirection of one command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Redirect {
    pub(super) slot: u16,
    pub(super) address: Address,
    /// The slot is still on its way, and this applies to the one command only.
    pub(super) is_ask: bool,
}

impl Redirect {
    /// Reads the error of a server at `host`.
    pub(super) fn of(error: &ServerError, host: &str) -> Option<Self> {
        let error = RedisError::from(error.clone());
        let (address, slot) = error.redirect_node().filter(|it| it.1 < SLOTS)?;
        let (named, port) = address.rsplit_once(':')?;
        Some(Self {
            slot,
            address: (known(named, host).to_owned(), port.parse().ok()?),
            is_ask: error.kind() == ServerErrorKind::Ask.into(),
        })
    }
}

fn known<'a>(named: &'a str, host: &'a str) -> &'a str {
    match named {
        "" | "?" => host,
        named => named,
    }
}

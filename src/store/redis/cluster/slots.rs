//! Which server of a cluster holds what: [`Ranges`], and the slot of a name.

use std::sync::OnceLock;

use crc::{CRC_16_XMODEM, Crc};
use redis::{FromRedisValue, Value};

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// Host and port.
pub(super) type Address = (String, u16);

/// From the first slot to the last, the address of their primary.
pub(super) type Ranges = Vec<(u16, u16, Address)>;

/// The slot of a name: that of the text between the first brace and the one that closes it, or, if there is
/// none, of the whole name. See the [specification].
///
/// [specification]: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
pub(super) fn of(name: &str) -> u16 {
    const SUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    let behind = name.split_once('{').map(|(_, behind)| behind);
    let tag = behind.and_then(|it| it.split_once('}'));
    let hashed = match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => name,
    };
    SUM.checksum(hashed.as_bytes()) % SLOTS
}

/// A tag of this slot: a number, as short as there is one.
pub(super) fn tag(slot: u16) -> String {
    static TAGS: OnceLock<Vec<Option<u32>>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut left = tags.len();
        for number in 0_u32.. {
            let tag = &mut tags[usize::from(of(&number.to_string()))];
            if tag.is_none() {
                *tag = Some(number);
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        tags
    });
    let tag = tags.get(usize::from(slot)).copied().flatten();
    tag.unwrap_or_default().to_string()
}

/// What a server at `host` has answered to `CLUSTER SLOTS`. It leaves a host open that it does not know, as
/// its own; `None` if it said something else.
pub(super) fn read(answer: Value, host: &str) -> Option<Ranges> {
    let Value::Array(ranges) = answer else {
        return None;
    };
    ranges.into_iter().map(|it| range(it, host)).collect()
}

fn range(range: Value, host: &str) -> Option<(u16, u16, Address)> {
    let Value::Array(parts) = range else {
        return None;
    };
    let mut parts = parts.into_iter();
    let mut number = || u16::from_redis_value(parts.next()?).ok();
    let (first, last) = (number()?, number()?);
    let Value::Array(primary) = parts.next()? else {
        return None;
    };
    let mut primary = primary.into_iter();
    let named = Option::<String>::from_redis_value(primary.next()?).ok()?;
    let port = u16::from_redis_value(primary.next()?).ok()?;
    let is_valid = first <= last && last < SLOTS;
    is_valid.then(|| (first, last, (known(named.as_deref(), host), port)))
}

/// Where a redirection leads that a server at `host` has answered.
pub(super) fn address(text: &str, host: &str) -> Option<Address> {
    let (named, port) = text.rsplit_once(':')?;
    Some((known(Some(named), host), port.parse().ok()?))
}

fn known(named: Option<&str>, host: &str) -> String {
    match named {
        None | Some("" | "?") => host.to_owned(),
        Some(named) => named.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // By `CLUSTER KEYSLOT`.
        for (name, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("throttle:{foo}:10/s:aside", 12_182),
            ("{}foo", 9_500),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("{user1000}.following", 3_443),
        ] {
            assert_eq!(of(name), slot, "{name}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in 0..SLOTS {
            assert_eq!(of(&format!("throttle:{{{}}}:born", tag(slot))), slot);
        }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn slots(host: Value) -> Value {
        let node = Value::Array(vec![host, Value::Int(7_000), text("id")]);
        let range = vec![Value::Int(0), Value::Int(5_460), node];
        Value::Array(vec![Value::Array(range)])
    }

    #[test]
    fn a_host_that_is_left_open_is_that_of_who_answers() {
        for (host, read_as) in [
            (text("10.0.0.1"), "10.0.0.1"),
            (text(""), "asked"),
            (text("?"), "asked"),
            (Value::Nil, "asked"),
        ] {
            let address = (read_as.to_owned(), 7_000);
            assert_eq!(read(slots(host), "asked"), Some(vec![(0, 5_460, address)]));
        }
        assert_eq!(address(":7001", "asked"), Some(("asked".to_owned(), 7_001)));
        assert_eq!(
            address("::1:7001", "asked"),
            Some(("::1".to_owned(), 7_001))
        );
    }

    #[test]
    fn anything_else_is_no_map_and_no_panic() {
        let part = |number| Value::Array(vec![Value::Array(vec![Value::Int(number); 2])]);
        for strange in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            part(-1),
            part(70_000),
        ] {
            assert_eq!(read(strange, "asked"), None);
        }
        for strange in [
            "",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:x",
            "127.0.0.1:99999",
        ] {
            assert_eq!(address(strange, "asked"), None);
        }
    }
}

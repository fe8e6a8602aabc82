//! Common handwritten schemes: the commands for a request, or for a long log of requests.
//!
//! Choices favour the schemes: members and scores are integers, which Redis stores in the fewest bytes.

use redis::Cmd;

/// A scheme for a quota of 2 per 30 s.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    /// The algorithm of this crate whose key names are also measured with the scheme.
    pub(crate) beside: &'static str,
    /// Records the request with this number; requests are 7 s apart.
    pub(crate) record: fn(name: &str, number: u64) -> Cmd,
}

/// A scheme that records each request.
pub(crate) struct LogScheme {
    pub(crate) name: &'static str,
    /// Records the requests with these numbers; requests are a millisecond apart.
    pub(crate) record: fn(name: &str, numbers: std::ops::Range<u64>) -> Cmd,
}

pub(crate) const SORTED_SET: &str = "sorted set";
pub(crate) const HASH: &str = "hash, a field per second";
pub(crate) const NUMBER: &str = "number";

/// An arbitrary time, in microseconds.
const ORIGIN: u64 = 1_760_000_000_123_456;

pub(crate) const SCHEMES: [Scheme; 4] = [
    Scheme {
        name: SORTED_SET,
        beside: "sliding log",
        record: |name, number| {
            let time = ORIGIN + number * 7_000_000;
            command(&["ZADD", name], &[time, time])
        },
    },
    Scheme {
        name: HASH,
        beside: "sliding log",
        record: |name, number| {
            let second = ORIGIN / 1_000_000 + number * 7;
            command(&["HINCRBY", name], &[second, 1])
        },
    },
    Scheme {
        name: NUMBER,
        beside: "gcra",
        record: |name, number| command(&["SET", name], &[ORIGIN + number * 7_000_000]),
    },
    Scheme {
        name: "counter",
        beside: "fixed window",
        record: |name, _| command(&["INCR", name], &[]),
    },
];

pub(crate) const LOG_SCHEMES: [LogScheme; 3] = [
    LogScheme {
        name: SORTED_SET,
        record: |name, numbers| {
            let times = numbers.map(|number| ORIGIN + number * 1_000);
            command(
                &["ZADD", name],
                &times.flat_map(|time| [time, time]).collect::<Vec<_>>(),
            )
        },
    },
    LogScheme {
        name: "hash, a field per ms",
        record: |name, numbers| {
            let times = numbers.map(|number| ORIGIN / 1_000 + number);
            command(
                &["HSET", name],
                &times.flat_map(|time| [time, 1]).collect::<Vec<_>>(),
            )
        },
    },
    LogScheme {
        name: "list of times",
        record: |name, numbers| {
            let times = numbers.map(|number| ORIGIN + number * 1_000);
            command(&["RPUSH", name], &times.collect::<Vec<_>>())
        },
    },
];

/// The command that sets the expiry of the key.
pub(crate) fn expire(name: &str) -> Cmd {
    command(&["EXPIRE", name], &[60])
}

fn command(words: &[&str], numbers: &[u64]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).arg(numbers);
    command
}

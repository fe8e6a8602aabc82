//! Values that no throttle writes, of every kind.

/// A value that stands where a store keeps its own, by the words that put it there.
pub(crate) struct Foreign {
    pub(crate) what: &'static str,
    pub(crate) words: Vec<Vec<u8>>,
}

pub(crate) fn string(what: &'static str, bytes: impl AsRef<[u8]>) -> Foreign {
    Foreign {
        what,
        words: vec![b"SET".into(), b"KEY".into(), bytes.as_ref().into()],
    }
}

pub(crate) fn words(what: &'static str, words: &[&str]) -> Foreign {
    Foreign {
        what,
        words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
    }
}

pub(crate) fn of_other_types() -> Vec<Foreign> {
    vec![
        words("a list", &["RPUSH", "KEY", "a", "b"]),
        words("a hash", &["HSET", "KEY", "a", "b"]),
        words("a set", &["SADD", "KEY", "a", "b"]),
        words("a sorted set", &["ZADD", "KEY", "1", "a"]),
        words("a stream", &["XADD", "KEY", "1-1", "a", "b"]),
    ]
}

pub(crate) fn no_logs() -> Vec<Foreign> {
    // The place of the first record, how many there are and room for, and the last; in this order.
    let header = |first: u32, count: u32, room: u32, last: u64| {
        let numbers = [first, count, room].map(u32::to_be_bytes);
        [numbers.as_flattened(), &last.to_be_bytes()].concat()
    };
    let ring = |header: Vec<u8>, records: usize| [header, vec![1; records * 8]].concat();
    // Bytes of an offset and of a count; the first record; the rest.
    let short = |offset: u8, count: u8, first: u64, rest: &[u8]| {
        let first = &first.to_le_bytes()[..7];
        [&[128 + 8 * offset + count][..], first, rest].concat()
    };
    vec![
        string("one byte", "x"),
        string("a header alone", header(0, 0, 0, 0)),
        string("half a record", [header(0, 1, 1, 1), vec![0; 4]].concat()),
        string("a text", "hello, world: this is not for you"),
        string("random bytes", [0x9d; 8 * 6]),
        string(
            "more records than there is room",
            ring(header(0, 3, 2, 1), 2),
        ),
        string("more room than there is", ring(header(0, 2, 3, 1), 2)),
        string("less room than there is", ring(header(0, 1, 1, 1), 2)),
        string("a place behind the end", ring(header(7, 1, 2, 1), 2)),
        string("no records", ring(header(0, 0, 2, 1), 2)),
        string(
            "counts that overflow",
            ring(header(1 << 30, u32::MAX, u32::MAX, 1), 2),
        ),
        string(
            "a record at the end of time",
            ring(header(0, 1, 1, u64::MAX), 1),
        ),
        string(
            "a record in a million years",
            ring(header(0, 1, 2, 9_000_000_000_000_000_000), 2),
        ),
        string("a million bytes", vec![0xff; 1_000_000]),
        string(
            "a short log without its first record",
            &short(4, 0, 0, &[])[..5],
        ),
        string("offsets of no bytes", short(0, 0, 1, &[])),
        string("half an offset", short(4, 0, 1, &[1, 2])),
        string("counts in a log", short(1, 1, 1, &[1, 1, 1])),
        string("more than a short log holds", short(1, 0, 1, &[1; 16])),
        string(
            "much more than a short log holds",
            short(1, 0, 1, &[1; 1_000]),
        ),
        string("records in disorder", short(1, 0, 1, &[5, 4])),
        string(
            "a first record at the end of time",
            short(1, 0, u64::MAX, &[]),
        ),
        string(
            "a last record at the end of time",
            short(7, 0, 1, &[0xff; 7]),
        ),
    ]
}

pub(crate) fn no_buckets() -> Vec<Foreign> {
    let packed = |header: u8, rest: &[u8]| [&[header, 1, 0, 0, 0, 0, 0, 0], rest].concat();
    vec![
        string("nothing", ""),
        string("one byte", "x"),
        string("a text", "hello, world: this is not for you"),
        string("random bytes", [0x9d; 8 * 6 + 1]),
        string("no counts", packed(128 + 8, &[1, 2])),
        string("no count of the first", packed(128 + 8 + 1, &[])),
        string("half a bucket", packed(128 + 8 + 1, &[1, 1])),
        string("buckets in disorder", packed(128 + 8 + 1, &[1, 5, 1, 4, 1])),
        string("a million bytes", vec![0xff; 1_000_000]),
    ]
}

pub(crate) fn no_windows() -> Vec<Foreign> {
    vec![
        string("nothing", ""),
        string("one byte", "x"),
        string("half a window", [1; 10]),
        string("more than a window", [1; 12]),
        string("half an end", [1; 17]),
        string("a text", "hello, world: this is not for you"),
        string("a start at the end of time", [0xff; 11]),
        string(
            "an end before its start",
            [2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        ),
    ]
}

pub(crate) fn no_numbers() -> Vec<Foreign> {
    vec![
        string("nothing", ""),
        string("a text", "soon"),
        string("a negative number", "-5"),
        string("a fraction", "1.5"),
        string("infinity", "inf"),
        string("negative infinity", "-inf"),
        string("no number", "nan"),
        string("an absurd number", "99999999999999999999"),
        string("a number beyond all numbers", "1e999"),
        string("a list of numbers", "1,2"),
        string("a NUL", "\0"),
        string("random bytes", [0x9d, 0xff, 0x00, 0x13]),
    ]
}

pub(crate) fn nothing_aside() -> Vec<Foreign> {
    // At, recorded at, cost, and the receipts of all kinds: those of three numbers and one window.
    let slot = |numbers: [u64; 3]| {
        let numbers = numbers.into_iter().chain([1; 6]);
        numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let hold = |first: u8, numbers: [u64; 6]| {
        let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
        [first].into_iter().chain(numbers).collect::<Vec<u8>>()
    };
    vec![
        string("nothing", ""),
        string("a text", "soon"),
        string("half a slot", &slot([1, 1, 1])[..44]),
        string("a slot and a half", [slot([1, 1, 1]), vec![0; 8]].concat()),
        string("random bytes", [0x9d, 0xff, 0x00, 0x13]),
        string("a slot at the end of time", slot([u64::MAX, 1, 1])),
        string("a slot in a million years", slot([1 << 62, 1 << 62, 1])),
        string("a record in a million years", slot([1, 1 << 62, 1])),
        string("part of a hold", &hold(1, [1; 6])[..48]),
        string("a hold of another kind", hold(2, [1; 6])),
        string(
            "a hold until the end of time",
            hold(1, [u64::MAX, 1, 0, 0, 0, 0]),
        ),
        string(
            "a hold since the end of time",
            hold(1, [1, u64::MAX, 0, 0, 0, 0]),
        ),
        string(
            "an allowance beyond all costs",
            hold(1, [0, 0, 0, 1, 1, 1 << 32]),
        ),
        string(
            "a hold and a half slot",
            [hold(1, [1; 6]), vec![1; 32]].concat(),
        ),
    ]
}

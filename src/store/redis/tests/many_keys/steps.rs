//! Random calls for many keys, of policies whose keys share a script.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::Limiter;
use crate::algorithm::simulation::NotBefore;
use crate::policy::Policy;
use crate::store::Ask;

const UNIT: u64 = 1_000_000;

/// Policies whose keys share a script: a name, or none, and quotas.
pub(super) type Family = &'static [(&'static str, &'static [&'static str])];

/// Their states are read at once, unless there is anything else.
pub(super) const SHORT_LOGS: Family = &[
    ("", &["1/s"]),
    ("", &["3/s"]),
    ("", &["16/2s"]),
    ("another", &["3/s"]),
];

pub(super) const FAMILIES: [(&str, Family); 8] = [
    ("short logs", SHORT_LOGS),
    (
        "logs",
        &[
            ("", &["3/s"]),
            ("", &["17/s"]),
            ("", &["100/10s"]),
            ("joint", &["3/s", "20/10s"]),
        ],
    ),
    (
        "spacing",
        &[
            ("", &["3/s spacing"]),
            ("", &["7/s spacing"]),
            ("joint", &["7/s spacing", "50/10s spacing"]),
        ],
    ),
    (
        "leaky buckets",
        &[
            ("", &["5/s leaky-bucket capacity=6"]),
            ("", &["5/s leaky-bucket capacity=1"]),
            ("another", &["5/s leaky-bucket capacity=6"]),
        ],
    ),
    (
        "gcra",
        &[
            ("", &["7/s gcra burst=4"]),
            ("", &["7/s gcra burst=1"]),
            ("", &["30/s gcra burst=30"]),
        ],
    ),
    (
        "buckets",
        &[
            ("", &["5/s sliding-buckets buckets=4"]),
            ("", &["40/10s sliding-buckets buckets=10"]),
        ],
    ),
    (
        "windows",
        &[
            ("", &["5/s fixed-window"]),
            ("", &["4/s fixed-window start=first-request"]),
        ],
    ),
    (
        "logs and numbers",
        &[
            ("", &["3/s", "7/s gcra burst=4"]),
            ("", &["20/10s", "7/s gcra burst=4"]),
        ],
    ),
];

#[derive(Debug, Clone)]
pub(super) enum Step {
    Ask {
        advance: i64,
        groups: Vec<Group>,
        spoilt: Vec<Spoilt>,
    },
    /// Gives back one slot that is held, and some others of its key.
    Release { first: Index, others: Vec<Index> },
}

/// Keys that ask for the same.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) policy: Index,
    pub(super) keys: Vec<u32>,
    pub(super) margin: u64,
    pub(super) not_before: NotBefore,
    pub(super) peek: bool,
    /// At costs that may be more than the policy allows, and are less then.
    pub(super) asks: Vec<Ask>,
}

/// What stands for the time of one call where one of its keys has a value.
#[derive(Debug, Clone)]
pub(super) struct Spoilt {
    pub(super) key: Index,
    pub(super) name: Index,
    pub(super) value: Foreign,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Foreign {
    List,
    Hash,
    Text,
    Bytes,
}

impl Foreign {
    pub(super) fn put(self, name: &str) -> redis::Cmd {
        let (command, value): (_, &[&[u8]]) = match self {
            Self::List => ("RPUSH", &[b"a"]),
            Self::Hash => ("HSET", &[b"a", b"b"]),
            Self::Text => ("SET", &[b"hello, world: this is not for you"]),
            Self::Bytes => ("SET", &[&[0x9d; 49]]),
        };
        redis::cmd(command).arg(name).arg(value).clone()
    }
}

pub(super) fn policy((name, quotas): &(&str, &[&str])) -> Policy {
    let quotas = quotas.iter().map(|quota| quota.parse().unwrap());
    let builder = quotas.fold(Limiter::builder(), |builder, it| builder.quota(it));
    let builder = if name.is_empty() {
        builder
    } else {
        builder.name(*name)
    };
    let policy = builder.build().unwrap().policy();
    (*policy).clone()
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = |most: u64| (0..=most * 4).prop_map(|it| it * UNIT / 4);
    let advance = prop_oneof![
        4 => Just(0),
        4 => (0..UNIT).prop_map(u64::cast_signed),
        2 => some(2).prop_map(u64::cast_signed),
        1 => some(20).prop_map(u64::cast_signed),
        1 => (0..UNIT).prop_map(|back| -back.cast_signed()),
    ];
    let foreign = prop_oneof![
        Just(Foreign::List),
        Just(Foreign::Hash),
        Just(Foreign::Text),
        Just(Foreign::Bytes),
    ];
    let spoilt = (any::<Index>(), any::<Index>(), foreign);
    let spoilt = spoilt.prop_map(|(key, name, value)| Spoilt { key, name, value });
    let spoilt = prop_oneof![3 => vec(spoilt.clone(), 0), 1 => vec(spoilt, 1..3)];
    let ask = (advance, vec(group(), 1..5), spoilt);
    let ask = ask.prop_map(|(advance, groups, spoilt)| Step::Ask {
        advance,
        groups,
        spoilt,
    });
    let release = (any::<Index>(), vec(any::<Index>(), 0..4));
    let release = release.prop_map(|(first, others)| Step::Release { first, others });
    vec(prop_oneof![1 => ask, 1 => release], 60)
}

fn group() -> impl Strategy<Value = Group> {
    let margin = prop_oneof![3 => Just(UNIT / 50), 1 => 0..UNIT / 2];
    let not_before = prop_oneof![
        6 => Just(NotBefore::Now),
        1 => Just(NotBefore::Last),
        1 => (0..5 * UNIT).prop_map(NotBefore::After),
    ];
    // Few that are met again, in one call too, and many that are new.
    let keys = prop_oneof![2 => vec(0..3_u32, 1..4), 1 => vec(3..1_000_u32, 1..8)];
    let max_wait = prop_oneof![3 => Just(u64::MAX), 1 => Just(0), 1 => 0..8 * UNIT];
    let cost = prop_oneof![4 => Just(1), 1 => 1..20_u32];
    let ask = (0..=6_u32, cost, max_wait).prop_map(|(count, cost, max_wait)| Ask {
        count,
        cost,
        max_wait,
    });
    let asks = prop_oneof![3 => vec(ask.clone(), 1), 1 => vec(ask, 0..4)];
    let peek = prop::bool::weighted(0.2);
    let group = (any::<Index>(), keys, margin, not_before, peek, asks);
    group.prop_map(|(policy, keys, margin, not_before, peek, asks)| Group {
        policy,
        keys,
        margin,
        not_before,
        peek,
        asks,
    })
}

//! Defects that the judgment has to find: [`Mischief`].

/// One thing that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mischief {
    /// Some requests are polled once and then kept, never to be polled again: their lines stay.
    Abandons,
    /// A task is started now and then that never ends.
    Dawdles,
    /// A key without an expiry is written where the limiter keeps its own.
    Litters,
    /// Some requests that were refused depart all the same.
    Jumps,
    /// The server loses its state, and the judgment does not allow for it.
    Forgets,
    /// Each request leaves some memory behind.
    Hoards,
}

use Mischief::{Abandons, Dawdles, Forgets, Hoards, Jumps, Litters};

const NAMES: [(&str, Mischief); 6] = [
    ("abandons", Abandons),
    ("dawdles", Dawdles),
    ("litters", Litters),
    ("jumps", Jumps),
    ("forgets", Forgets),
    ("hoards", Hoards),
];

/// For [`parse`] in another process.
pub(crate) fn text(all: &[Mischief]) -> String {
    let named = NAMES.iter().filter(|(_, it)| all.contains(it));
    let names: Vec<_> = named.map(|(name, _)| *name).collect();
    names.join(",")
}

pub(crate) fn parse(text: &str) -> Vec<Mischief> {
    let find = |name: &str| {
        let found = NAMES.iter().find(|(it, _)| *it == name);
        found.unwrap_or_else(|| panic!("no mischief: {name}")).1
    };
    text.split(',')
        .filter(|it| !it.is_empty())
        .map(find)
        .collect()
}

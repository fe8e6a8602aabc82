//! The names of what quotas count.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use smallvec::SmallVec;

use crate::lock::Mutex;

/// The unit of a quota that names none.
pub(crate) const REQUESTS: &str = "requests";

/// The unit of concurrency limits, by the name that draft-ietf-httpapi-ratelimit-headers has for it.
pub(crate) const CONCURRENT: &str = "concurrent-requests";

/// The most units of one policy.
pub(crate) const MOST_UNITS: usize = 4;

/// The names of eight quotas fit into 255 bytes.
const LONGEST: usize = 31;

/// Why a name is no unit.
pub(super) const PROBLEM: &str = "the unit is not 1 to 31 characters of a-z, 0-9, `-`, `_` and `.`";

/// A unit that was read from text. Names are kept for good, as programs use few of them.
pub(crate) fn parse(name: &str) -> Result<&'static str, String> {
    let name = &*name.to_ascii_lowercase();
    if !is_valid(name) {
        return Err(PROBLEM.to_owned());
    }
    static NAMES: LazyLock<Mutex<BTreeSet<&'static str>>> = LazyLock::new(Mutex::default);
    Ok(kept(&NAMES, name, || name.to_owned().leak()))
}

/// The names of the units of a policy, requests first.
pub(crate) type UnitNames = &'static [&'static str];

/// The names as a list that is kept for good.
pub(crate) fn interned(units: &[&'static str]) -> UnitNames {
    static LISTS: LazyLock<Mutex<BTreeSet<UnitNames>>> = LazyLock::new(Mutex::default);
    if units == [REQUESTS] {
        return &[REQUESTS];
    }
    kept(&LISTS, units, || units.to_vec().leak())
}

/// The value in a table, which is made if it is not there.
fn kept<T: Ord + ?Sized>(
    table: &Mutex<BTreeSet<&'static T>>,
    value: &T,
    make: impl FnOnce() -> &'static T,
) -> &'static T {
    let mut table = table.lock();
    let known = table.get(value).copied();
    known.unwrap_or_else(|| {
        let value = make();
        table.insert(value);
        value
    })
}

/// The units of these quotas, requests first and the others by name.
pub(crate) fn units_of(
    quotas: impl IntoIterator<Item = &'static str>,
) -> SmallVec<[&'static str; 1]> {
    let mut units: SmallVec<[&'static str; 1]> = quotas.into_iter().collect();
    units.sort_unstable_by_key(|&unit| (unit != REQUESTS, unit));
    units.dedup();
    units
}

pub(super) fn is_valid(name: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(fits)
}

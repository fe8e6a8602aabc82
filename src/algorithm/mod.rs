//! The state of one key, the operations on it, and the algorithms by which it counts.
//!
//! All times are whole microseconds on the store's clock. The scripts in Lua beside these files do the same on the
//! encoded value.

pub(crate) use self::{
    call::{Attempt, Origin, Recorded, Times},
    codec::{Amounts, HEADS, unit_names},
    concurrent::Concurrent,
    counter::{Counter, Tally, are_alike, number_units},
    demand::Announcement,
    fixed::Fixed,
    gcra::Gcra,
    numbers::{Reader, Writer},
    order::{Ahead, Others, Tag},
    state::{Allowance, Commands, Generation, State},
    units::{LANE_BITS, LEVEL_BITS, MOST_SHARES, Units, costs_in, has_share, level, share_number},
    window::Window,
};
pub use self::{
    call::{Command, Grant, Known, Mode, Strict, Take, Taken},
    concurrent::{Holding, Occupancy},
    corrections::{Corrections, Settlement},
    demand::Demand,
    order::{Flow, Reserves},
    units::Costs,
};

mod call;
mod codec;
mod concurrent;
mod corrections;
mod counter;
mod demand;
mod fixed;
mod gcra;
mod next;
mod numbers;
mod order;
mod state;
#[cfg(test)]
mod tests;
mod units;
mod usage;
mod window;

use self::counter::{Algorithm, Size};

/// The longest span: ten years. Longer ones are cut, so that doubles hold all times exactly.
const LONGEST_SPAN: u64 = 10 * 365 * 24 * 60 * 60 * 1_000_000;

/// The times and other numbers that the scripts share, by their marks.
pub(crate) const CONSTANTS: [(&str, u64); 18] = [
    ("@DEPART_WITHIN", call::OTHERS_DEPART_WITHIN),
    ("@LATE", demand::LATE),
    ("@OVERDUE", demand::OVERDUE),
    ("@FORGOTTEN", demand::FORGOTTEN),
    ("@WATCH_DELAY", demand::WATCH_DELAY),
    ("@SOONEST_CALL", next::SOONEST_CALL),
    ("@LONGEST_SILENCE", next::LONGEST_SILENCE),
    ("@UNAWARE", next::UNAWARE),
    ("@NUDGE_TIMEOUT", next::NUDGE_TIMEOUT),
    ("@TOLERANCE", order::TOLERANCE),
    ("@LOOK", concurrent::LOOK),
    ("@REMEMBERED", state::REMEMBERED),
    ("@TAIL_ROOM", codec::TAIL_ROOM as u64),
    ("@LEAST_BEYOND", call::LEAST_BEYOND),
    ("@LONGEST_SPAN", LONGEST_SPAN),
    ("@LANE", 1 << LANE_BITS),
    ("@SHARE", 1 << LEVEL_BITS.end),
    ("@LEVEL", 1 << LEVEL_BITS.start),
];

/// A number of intervals as a time, of ten years at most.
fn span(count: u64, interval: u64) -> u64 {
    count.saturating_mul(interval).min(LONGEST_SPAN)
}

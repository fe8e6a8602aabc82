//! Fixed windows, put together from the whole history each time.
//!
//! Only the last window counts: nothing is placed before it, and a slot of an earlier one stays
//! charged there even if it is given back.

use std::ops::Range;

use super::model::Departure;

/// A window and those that depart in it.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) start: u64,
    pub(super) end: u64,
    members: Range<usize>,
}

/// The window that a first departure opens: over all that it touches.
fn opened(first: &Departure, length: u64, aligned: bool) -> (u64, u64) {
    if first.id == usize::MAX && first.cost == 0 {
        return (first.at, first.at);
    }
    let start = if aligned {
        first.at / length * length
    } else {
        first.at
    };
    let mut end = start + length;
    while end <= first.record {
        end = if aligned {
            end + length
        } else {
            first.record + 1
        };
    }
    (start, end)
}

pub(super) fn last(past: &[Departure], length: u64, aligned: bool) -> Option<Open> {
    let mut last: Option<Open> = None;
    for (place, it) in past.iter().enumerate() {
        let (start, end) = opened(it, length, aligned);
        let touched = if aligned { end } else { it.record + 1 };
        match &mut last {
            Some(open) if it.at < open.end => {
                open.end = open.end.max(touched);
                open.members.end = place + 1;
            }
            _ => {
                last = Some(Open {
                    start,
                    end,
                    members: place..place + 1,
                });
            }
        }
    }
    last
}

fn total(past: &[Departure], open: &Open) -> u64 {
    past[open.members.clone()].iter().map(|it| it.cost).sum()
}

pub(super) fn allows(
    past: &[Departure],
    limit: u64,
    length: u64,
    aligned: bool,
    t: u64,
    late: u64,
    cost: u64,
) -> bool {
    let has_to_fit = late * 2 <= length;
    let fits = |end: u64| !has_to_fit || t + late < end;
    match last(past, length, aligned) {
        Some(open) if t < open.start => false,
        Some(open) if t < open.end => total(past, &open) + cost <= limit && fits(open.end),
        _ if aligned => fits((t / length + 1) * length),
        _ => true,
    }
}

/// Whether it is in the last window, and did not open it for others.
pub(super) fn can_leave(past: &[Departure], length: u64, aligned: bool, id: usize) -> bool {
    let Some(open) = last(past, length, aligned) else {
        return false;
    };
    let members = &past[open.members.clone()];
    let Some(own) = members.iter().find(|it| it.id == id) else {
        return false;
    };
    let is_alone = total(past, &open) == own.cost;
    members[0].id != id || is_alone && open.end == opened(own, length, aligned).1
}

pub(super) fn give_back(past: &mut Vec<Departure>, length: u64, aligned: bool, id: usize) {
    let Some(open) = last(past, length, aligned) else {
        return;
    };
    let is_first = past[open.members.start].id == id;
    if is_first && can_leave(past, length, aligned, id) {
        past.truncate(open.members.start);
        return;
    }
    let mut members = past[open.members.clone()].iter_mut();
    if let Some(own) = members.find(|it| it.id == id) {
        own.cost = 0;
    }
    if total(past, &open) == 0 {
        past.truncate(open.members.start);
        past.push(Departure::floor(open.start));
    }
}

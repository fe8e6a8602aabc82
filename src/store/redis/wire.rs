//! Calls and answers of the scripts, as bytes. `state.lua` lists their parts.

use redis::Value;

use crate::algorithm::{
    Amounts, Command, Counter, Grant, Known, Reader, Take, Taken, Tally, Writer, unit_names,
};
use crate::policy::Policy;
use crate::store::{Call, Operation, StoreError};

use super::script::CALL_HEAD;

/// The bytes of the rest of most calls.
const USUAL_REST: usize = 64;

/// The answer of a script for one key.
#[derive(Debug)]
pub(super) enum KeyAnswer {
    Done(Taken),
    /// The value has other quotas, or a log is full: change it without the script.
    NeedsTransaction,
    /// The value was not written by this version of the crate.
    Unrecognized,
    /// The script has worked for too long: call again.
    Later,
}

/// The first part of a call: it names the kinds of the quotas, and thus the script. Calls with the same head may
/// share a script call. `now` is the time, or 0, so that the script reads the clock.
pub(super) fn head(call: &Call, now: u64) -> Writer {
    let (policy, operation) = (&*call.policy, &call.operation);
    let code = match operation {
        Operation::Take(take) => take.mode as u64,
        Operation::Control(Command::Pause { .. }) => 3,
        Operation::Control(Command::Allow { .. }) => 4,
        Operation::Control(Command::Resume) => 5,
        Operation::Control(Command::Reset) => 6,
    };
    // With the terms of the quotas.
    let mut head = Writer(Vec::with_capacity(2 * CALL_HEAD));
    head.put([7, 1], [now, code]);
    match operation {
        Operation::Take(take) => {
            let strict = take.strict.map_or(0, |strict| {
                1 + 2 * u64::from(strict.known.is_some()) + 4 * u64::from(strict.clock_was_set)
            });
            let flags = strict
                + 8 * u64::from(!take.corrections.is_empty())
                + 16 * u64::from(take.has_share())
                + 32 * u64::from(take.has_reserves())
                + 64 * u64::from(take.corrections.moved != 0)
                + 128 * u64::from(take.holding.releases)
                + 256 * u64::from(take.holding.is_notified);
            let lateness = take.guard + policy.buffer_micros();
            let numbers = [take.process, take.round_trip, lateness, take.horizon, flags];
            head.put([7, 7, 7, 7, 2], numbers);
        }
        Operation::Control(_) => head.0.resize(CALL_HEAD, 0),
    }
    for counter in &policy.counters {
        counter.encode_terms(&mut head);
    }
    head.0.extend(unit_names(&policy.counters).bytes());
    head
}

/// Returns true if a call corrects departures or the key, and takes a script call of its own.
pub(super) fn is_single(call: &Call) -> bool {
    match &call.operation {
        Operation::Take(take) => {
            take.strict.is_some() || !take.corrections.is_empty() || take.holding.releases
        }
        Operation::Control(_) => true,
    }
}

/// Returns true if a call releases places, so that its script sends the nudges.
pub(super) fn releases(call: &Call) -> bool {
    matches!(&call.operation, Operation::Take(take) if take.holding.releases)
}

/// The rest of a call.
pub(super) fn rest(call: &Call, server: u64) -> Writer {
    let mut rest = Writer(Vec::with_capacity(USUAL_REST));
    let numbers = match call.operation {
        Operation::Take(ref take) => return put_take(rest, take, &call.policy, server),
        Operation::Control(Command::Pause { span, evidence }) => [evidence, span, 0, 1],
        Operation::Control(Command::Allow {
            unit,
            units,
            span,
            evidence,
        }) => [evidence, span, units.into(), unit as u64 + 1],
        Operation::Control(Command::Resume | Command::Reset) => [0, 0, 0, 1],
    };
    rest.put([7, 7, 4, 1], numbers);
    rest
}

fn put_take(mut out: Writer, take: &Take, policy: &Policy, server: u64) -> Writer {
    let (demand, corrections) = (&take.demand, &take.corrections);
    let (points, settlements) = (demand.points.len(), corrections.settlements.len());
    let (amounts, most) = (Amounts::of(&policy.counters), i64::from(u32::MAX));
    out.put([7, 7], [take.number, corrections.lost]);
    amounts.put_costs(&mut out, demand.cost);
    out.put([1, 2], [points as u64, settlements as u64]);
    for point in &take.demand.points {
        out.put([7], [point.arrival]);
        amounts.put_sums(&mut out, point.units);
    }
    for settlement in &corrections.settlements {
        let difference = settlement.difference.clamp(-most, most) + (1 << 32);
        let unit = settlement.unit as u64 + 1;
        let numbers = [settlement.recorded, difference.cast_unsigned(), unit];
        out.put([7, 7, 1], numbers);
    }
    if let Some(strict) = take.strict {
        let known = strict.known;
        let (generation, version) = known.map_or((0, 0), |it| (it.generation, it.version));
        let rest = take.quarantine(&policy.counters, policy.buffer_micros());
        out.put([7, 7, 7, 8], [rest, generation, version, server]);
    }
    if take.has_share() {
        out.put([7, 2], [take.flow.id, take.flow.weight.into()]);
    }
    if take.has_reserves() {
        out.put([4; 5], take.reserves.map(u64::from));
    }
    if corrections.moved != 0 {
        let moved = corrections.moved.clamp(-most, most) + (1 << 32);
        out.put([7], [moved.cast_unsigned()]);
    }
    if has_places(&policy.counters) {
        out.put([4], [take.holding.units.into()]);
    }
    out
}

fn has_places(counters: &[Counter]) -> bool {
    counters
        .iter()
        .any(|it| matches!(it.tally, Tally::Concurrent(_)))
}

/// Reads the time of a script's answer, and the answers of so many keys with these quotas. Returns `None` for other values.
pub(super) fn answers(
    value: &Value,
    count: usize,
    counters: &[Counter],
) -> Option<(u64, Vec<KeyAnswer>)> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let mut bytes = Reader(bytes);
    let [now] = bytes.numbers([7]).ok()?;
    let answers = (0..count).map(|_| answer(&mut bytes, counters));
    let answers = answers.collect::<Result<_, _>>().ok()?;
    bytes.0.is_empty().then_some((now, answers))
}

fn answer(bytes: &mut Reader<'_>, counters: &[Counter]) -> Result<KeyAnswer, StoreError> {
    let [status] = bytes.numbers([1])?;
    Ok(match status {
        1 => KeyAnswer::Done(Taken {
            is_outdated: true,
            ..Taken::default()
        }),
        2 => KeyAnswer::NeedsTransaction,
        3 => KeyAnswer::Unrecognized,
        5 => KeyAnswer::Later,
        _ => KeyAnswer::Done(taken(status, bytes, counters)?),
    })
}

fn taken(status: u64, bytes: &mut Reader<'_>, counters: &[Counter]) -> Result<Taken, StoreError> {
    let mut taken = Taken {
        remaining: Amounts::of(counters).costs(bytes)?,
        overtakes: status & 4 != 0,
        ..Taken::default()
    };
    let (expected, grants);
    [taken.reset, taken.next_call, expected, grants] = bytes.numbers([7, 7, 1, 2])?;
    if has_places(counters) {
        let it = &mut taken.occupancy;
        [it.held, it.processes, it.reclaimed] = bytes.numbers([4; 3])?.map(|it| it as u32);
    }
    taken.expected = bytes.list(expected as usize, [7])?.flatten().collect();
    let grants = bytes.list(grants as usize, [7, 7, 4])?;
    let grants = grants.map(|[at, recorded, requests]| Grant {
        at,
        recorded,
        requests: requests as u32,
    });
    taken.grants = grants.collect();
    if status & 8 != 0 {
        let (generation, version);
        [
            taken.paused_until,
            taken.quarantined_until,
            generation,
            version,
        ] = bytes.numbers([7; 4])?;
        let known = Known {
            generation,
            version,
        };
        taken.known = (generation > 0).then_some(known);
    }
    if status & 16 != 0 {
        let [count] = bytes.numbers([1])?;
        taken.nudged = bytes.list(count as usize, [7])?.flatten().collect();
    }
    Ok(taken)
}

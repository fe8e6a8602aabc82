//! Calls and answers of the scripts, as bytes. `state.lua` lists their parts.

use redis::Value;
use smallvec::SmallVec;

use crate::algorithm::{Command, Grant, Known, Mode, Take, Taken};
use crate::policy::Policy;
use crate::store::{Call, Operation};

use super::script::CALL_HEAD;

/// The longest number in a call: doubles hold it exactly.
const LONGEST: u64 = (1 << 53) - 1;

/// The answer of a script.
#[derive(Debug)]
pub(super) enum Answer {
    Done(Taken),
    /// The value has other quotas, or no room: change it without the script.
    Shape,
    /// The value was not written by this version of the crate.
    Unrecognized,
}

struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, number: u64, bytes: usize) {
        let number = number.min(LONGEST);
        self.0.extend_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

/// The call of an operation. `now` is the time, or 0, so that the script reads the clock.
pub(super) fn call(call: &Call, server: u64, now: u64) -> Vec<u8> {
    let (policy, operation) = (&*call.policy, &call.operation);
    let mut out = Writer(Vec::with_capacity(CALL_HEAD + 128));
    let (code, take) = match operation {
        Operation::Take(take) => {
            let code = match take.mode {
                Mode::Wait => 0,
                Mode::Try => 1,
                Mode::Peek => 2,
            };
            (code, Some(take))
        }
        Operation::Control(Command::Pause { .. }) => (3, None),
        Operation::Control(Command::Allow { .. }) => (4, None),
        Operation::Control(Command::Resume) => (5, None),
        Operation::Control(Command::Reset) => (6, None),
    };
    out.put(now, 7);
    out.put(code, 1);
    match take {
        Some(take) => put_take(&mut out, take, policy),
        None => out.0.resize(CALL_HEAD, 0),
    }
    for counter in policy.counters() {
        counter.encode_terms(&mut out.0);
    }
    match operation {
        Operation::Take(take) => put_demand(&mut out, take, policy, server),
        Operation::Control(command) => put_command(&mut out, *command),
    }
    out.0
}

fn put_take(out: &mut Writer, take: &Take, policy: &Policy) {
    for number in [
        take.process,
        take.number,
        take.lost,
        take.round_trip,
        take.guard + policy.buffer_micros(),
        take.horizon,
    ] {
        out.put(number, 7);
    }
    let strict = take.strict.map_or(0, |strict| {
        1 + 2 * u64::from(strict.known.is_some()) + 4 * u64::from(strict.clock_was_set)
    });
    out.put(take.demand.cost.into(), 4);
    out.put(take.demand.points.len() as u64, 1);
    out.put(take.settlements.len() as u64, 2);
    out.put(strict, 1);
}

fn put_demand(out: &mut Writer, take: &Take, policy: &Policy, server: u64) {
    for point in &take.demand.points {
        out.put(point.arrival, 7);
        out.put(point.units, 5);
    }
    let most = i64::from(u32::MAX);
    for settlement in &take.settlements {
        let difference = settlement.difference.clamp(-most, most) + (1 << 32);
        out.put(settlement.recorded, 7);
        out.put(difference.cast_unsigned(), 5);
    }
    if let Some(strict) = take.strict {
        let known = strict
            .known
            .map_or((0, 0), |it| (it.generation, it.version));
        out.put(
            take.quarantine(policy.counters(), policy.buffer_micros()),
            7,
        );
        out.put(known.0, 7);
        out.put(known.1, 7);
        out.0.extend_from_slice(&server.to_le_bytes());
    }
}

fn put_command(out: &mut Writer, command: Command) {
    let (evidence, span, units) = match command {
        Command::Pause { span, evidence } => (evidence, span, 0),
        Command::Allow {
            units,
            span,
            evidence,
        } => (evidence, span, units),
        Command::Resume | Command::Reset => (0, 0, 0),
    };
    out.put(evidence, 7);
    out.put(span, 7);
    out.put(units.into(), 4);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(number);
        Some(u64::from_le_bytes(whole))
    }
}

/// Reads the answer of a script, and its time. Returns `None` for other values.
pub(super) fn answer(value: &Value) -> Option<(Answer, u64)> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let mut bytes = Reader(bytes);
    let (status, now) = (bytes.number(1)?, bytes.number(7)?);
    let answer = match status {
        0 => Answer::Done(taken(&mut bytes)?),
        1 => Answer::Done(Taken {
            is_outdated: true,
            ..Taken::default()
        }),
        2 => Answer::Shape,
        _ => Answer::Unrecognized,
    };
    Some((answer, now))
}

fn taken(bytes: &mut Reader<'_>) -> Option<Taken> {
    let mut taken = Taken {
        remaining: bytes.number(4)? as u32,
        reset: bytes.number(7)?,
        next_call: bytes.number(7)?,
        paused_until: bytes.number(7)?,
        quarantined_until: bytes.number(7)?,
        ..Taken::default()
    };
    let (generation, version) = (bytes.number(7)?, bytes.number(7)?);
    taken.known = (generation > 0).then_some(Known {
        generation,
        version,
    });
    let (expected, grants) = (bytes.number(1)?, bytes.number(2)?);
    let expected = (0..expected).map(|_| bytes.number(7));
    taken.expected = expected.collect::<Option<SmallVec<_>>>()?;
    for _ in 0..grants {
        taken.grants.push(Grant {
            at: bytes.number(7)?,
            recorded: bytes.number(7)?,
            requests: bytes.number(4)? as u32,
        });
    }
    Some(taken)
}

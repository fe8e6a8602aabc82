//! The calls of the scripts; what they take stands in the Lua files.

use redis::Cmd;

use super::script::{Script, Scripts};
use crate::algorithm::Rule;
use crate::policy::Policy;
use crate::store::{Release, Reserve};

/// Longer than any wait, and a number that Lua holds exactly.
const FAR: u64 = 1 << 53;

pub(super) fn reserve(
    names: &[String],
    reserve: &Reserve<'_>,
    peek: bool,
) -> (Cmd, &'static Script) {
    let script = &Scripts::of(reserve.policy.rules()).reserve;
    let mut call = call(script, names, reserve.policy);
    let terms = reserve.terms();
    call.arg(terms.margin).arg(terms.least_margin);
    call.arg(terms.floor)
        .arg(terms.round_trip)
        .arg(terms.stagger);
    call.arg(terms.not_before);
    for ask in reserve.asks {
        call.arg(ask.count).arg(ask.cost);
        if peek {
            call.arg(-1);
        } else {
            call.arg(ask.max_wait.min(FAR));
        }
    }
    (call, script)
}

pub(super) fn release(names: &[String], release: &Release<'_>) -> (Cmd, &'static Script) {
    let script = &Scripts::of(release.policy.rules()).release;
    let mut call = call(script, names, release.policy);
    for slot in release.slots {
        call.arg(slot.at).arg(slot.record).arg(slot.cost);
        call.arg(slot.receipt.as_slice());
    }
    (call, script)
}

/// A call of a script up to and including the rules.
fn call(script: &Script, names: &[String], policy: &Policy) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(script.sha()).arg(names.len()).arg(names);
    call.arg(policy.rules().len());
    for (name, parameters) in policy.rules().iter().map(Rule::parts) {
        call.arg(name).arg(&parameters[..]);
    }
    call
}

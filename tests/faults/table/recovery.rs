//! Losses of state under strict recovery: never more than the quota allows.

use tower_throttle::{LimiterBuilder, Recovery};

use super::{memory, network, server};
use crate::fault::Fault;
use crate::load::LIMIT;
use crate::stage::Stage;

pub(super) const FAULTS: &[Fault] = &[
    strict("FLUSHALL, strict", memory::FLUSHALL),
    strict("DEL, strict", memory::DEL),
    strict("eviction, strict", memory::EVICTION),
    strict("kill -9, back empty, strict", server::BACK_EMPTY),
    Fault {
        inject: |stage| {
            (memory::FLUSHALL.inject)(stage);
            network::cut_replies(stage, b"EVALSHA");
        },
        ..strict("FLUSHALL, replies cut off, strict", memory::FLUSHALL)
    },
];

const fn strict(name: &'static str, fault: Fault) -> Fault {
    Fault {
        name,
        limiter: be_strict,
        most: as_ever,
        ..fault
    }
}

pub(super) fn be_strict(limiter: LimiterBuilder) -> LimiterBuilder {
    limiter.recovery(Recovery::Strict)
}

fn as_ever(_: &Stage) -> Option<u64> {
    Some(LIMIT)
}

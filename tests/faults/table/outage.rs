//! An outage under each policy that is not the default.

use tower_throttle::Outage;

use super::server::DURABLE;
use crate::fault::Fault;
use crate::load::LIMIT;
use crate::stage::PROCESSES;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "Outage::Allow",
        limiter: |limiter| limiter.outage(Outage::Allow),
        most: |_| None,
        ..DURABLE
    },
    LOCAL,
];

pub(super) const LOCAL: Fault = Fault {
    name: "Outage::Local",
    limiter: |limiter| {
        let share = 1.0 / PROCESSES as f64;
        limiter.outage(Outage::Local { share })
    },
    // Beside those with slots of the store, each process lets its share go.
    most: |_| Some(LIMIT + LIMIT / PROCESSES as u64 * PROCESSES as u64),
    ..DURABLE
};

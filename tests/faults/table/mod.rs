//! All faults, each a few lines.

mod deployments;
mod memory;
mod network;
mod outage;
pub(crate) mod places;
mod process;
mod recovery;
mod server;

use crate::fault::{Fault, Lasts};
use crate::load::LIMIT;

/// The baseline.
const NONE: &[Fault] = &[Fault {
    name: "none",
    lasts: Lasts::UntilDeparted(2 * LIMIT as usize),
    ..Fault::PLAIN
}];

/// In the order in which the documentation lists them.
pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    [
        NONE,
        network::FAULTS,
        server::FAULTS,
        memory::FAULTS,
        process::FAULTS,
        outage::FAULTS,
        recovery::FAULTS,
        deployments::FAULTS,
    ]
    .into_iter()
    .flatten()
}

/// By its name.
pub(crate) fn find(name: &str) -> &'static Fault {
    all()
        .find(|it| it.name == name)
        .expect("a fault of this name")
}

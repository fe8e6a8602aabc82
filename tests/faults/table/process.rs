//! Faults of one process.

use crate::fault::Fault;
use crate::stage::{Process, Stage};

pub(super) const FAULTS: &[Fault] = &[KILLED, STOPPED];

pub(super) const KILLED: Fault = Fault {
    name: "one of three killed",
    inject: |stage| {
        let process = stage.processes[0].take().expect("it runs");
        process.child.kill9();
    },
    heal: |stage| stage.respawn(0),
    ..Fault::PLAIN
};

pub(super) const STOPPED: Fault = Fault {
    name: "one of three stopped",
    inject: |stage| first(stage).child.sigstop(),
    heal: |stage| first(stage).child.sigcont(),
    ..Fault::PLAIN
};

fn first(stage: &Stage) -> &Process {
    stage.processes[0].as_ref().expect("it runs")
}

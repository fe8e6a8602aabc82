//! The faults of a soak run, all from the table of faults.

use crate::stage::Stage;

/// All of the table but four: what is kept on disk, as here nothing is, and other policies of an outage.
pub(crate) const ALL: &[&str] = &[
    "connections cut",
    "replies cut off",
    "nothing passes for a while",
    "nothing passes to one of three",
    "half-open connections, until TCP gives up",
    "connections refused",
    "connections reset when made",
    "200 ms each way",
    "SIGSTOP, SIGCONT",
    "CLIENT KILL",
    "CLIENT PAUSE",
    "SCRIPT FLUSH",
    "BUSY",
    "OOM",
    "one of three stopped",
    REPLACED,
    "FLUSHALL",
    "kill -9, back empty",
    "DEL",
    "eviction",
    DEMOTED,
    PROMOTED,
];

/// It puts a new process in the place of the first.
pub(crate) const REPLACED: &str = "one of three killed";

const DEMOTED: &str = "READONLY";
const PROMOTED: &str = "promoted replica";

/// Makes all as it was before, once the fault is put right.
pub(crate) fn afterwards(name: &str, stage: &mut Stage) {
    if name == PROMOTED {
        // The other way round, from then on.
        stage.servers.swap(0, 1);
        stage.servers[1].restart();
    }
    if name == PROMOTED || name == DEMOTED {
        stage.replicate(1, 0);
    }
    for thread in stage.beside.drain(..) {
        thread.join().expect("no panic beside the load");
    }
}

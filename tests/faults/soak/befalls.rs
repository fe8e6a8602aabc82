//! The faults of a soak run, all from the table of faults.

use Loses::{All, Nothing, Some};

use crate::stage::Stage;

/// The state that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loses {
    Nothing,
    /// All, with what tells how old the store is.
    All,
    /// None, but departures that were granted under the quotas before count as those under the present ones.
    Quotas,
    /// The state of some keys, or the last writes. Only processes that saw them can notice.
    Some,
}

/// One thing that goes wrong and is put right, again and again: its name in the table of faults.
pub(crate) type Befalls = (&'static str, Loses);

/// All of the table but four: what is kept on disk, as here nothing is, and other policies of an outage.
pub(crate) const ALL: &[Befalls] = &[
    ("connections cut", Nothing),
    ("replies cut off", Nothing),
    ("nothing passes for a while", Nothing),
    ("nothing passes to one of three", Nothing),
    ("half-open connections, until TCP gives up", Nothing),
    ("connections refused", Nothing),
    ("connections reset when made", Nothing),
    ("200 ms each way", Nothing),
    ("SIGSTOP, SIGCONT", Nothing),
    ("CLIENT KILL", Nothing),
    ("CLIENT PAUSE", Nothing),
    ("SCRIPT FLUSH", Nothing),
    ("BUSY", Nothing),
    ("OOM", Nothing),
    ("one of three stopped", Nothing),
    (REPLACED, Nothing),
    FLUSHALL,
    ("kill -9, back empty", All),
    ("DEL", Some),
    ("eviction", Some),
    (DEMOTED, Some),
    (PROMOTED, Some),
];

/// One that is over soon.
pub(crate) const FLUSHALL: Befalls = ("FLUSHALL", All);

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

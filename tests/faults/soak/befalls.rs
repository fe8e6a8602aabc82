//! The faults of a soak run, all from the table of faults.

use crate::fault::Fault;
use crate::stage::Stage;
use crate::table;

/// One thing that goes wrong and is put right, again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Befalls {
    /// In the table of faults.
    pub(crate) name: &'static str,
    pub(crate) loses: Loses,
    /// Once it is put right: all is as it was before.
    pub(crate) afterwards: fn(&mut Stage),
}

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

const fn befalls(name: &'static str, loses: Loses) -> Befalls {
    Befalls {
        name,
        loses,
        afterwards: |_| {},
    }
}

/// All of the table but four: what is kept on disk, as here nothing is, and other policies of an outage.
pub(crate) const ALL: &[Befalls] = &[
    befalls("connections cut", Loses::Nothing),
    befalls("replies cut off", Loses::Nothing),
    befalls("nothing passes for a while", Loses::Nothing),
    befalls("nothing passes to one of three", Loses::Nothing),
    befalls("half-open connections, until TCP gives up", Loses::Nothing),
    befalls("connections refused", Loses::Nothing),
    befalls("connections reset when made", Loses::Nothing),
    befalls("200 ms each way", Loses::Nothing),
    befalls("SIGSTOP, SIGCONT", Loses::Nothing),
    befalls("CLIENT KILL", Loses::Nothing),
    befalls("CLIENT PAUSE", Loses::Nothing),
    befalls("SCRIPT FLUSH", Loses::Nothing),
    befalls("BUSY", Loses::Nothing),
    befalls("OOM", Loses::Nothing),
    befalls("one of three stopped", Loses::Nothing),
    befalls(REPLACED, Loses::Nothing),
    befalls("FLUSHALL", Loses::All),
    befalls("kill -9, back empty", Loses::All),
    befalls("DEL", Loses::Some),
    befalls("eviction", Loses::Some),
    Befalls {
        afterwards: |stage| stage.replicate(1, 0),
        ..befalls("READONLY", Loses::Some)
    },
    Befalls {
        // The other way round, from then on.
        afterwards: |stage| {
            stage.servers.swap(0, 1);
            stage.servers[1].restart();
            stage.replicate(1, 0);
        },
        ..befalls("promoted replica", Loses::Some)
    },
];

/// One that is over soon.
pub(crate) const BRIEF: &[Befalls] = &[befalls("FLUSHALL", Loses::All)];

/// It puts a new process in the place of the first.
pub(crate) const REPLACED: &str = "one of three killed";

impl Befalls {
    pub(crate) fn fault(&self) -> &'static Fault {
        table::find(self.name)
    }
}

#[test]
fn everything_that_befalls_is_in_the_table_of_faults() {
    for befalls in ALL.iter().chain(BRIEF) {
        assert_eq!(befalls.fault().name, befalls.name);
    }
}

//! What is done when the store has lost the state of a key: [`Recovery`].

/// What is done when the store has lost the state of a key.
///
/// A store loses state when it is restarted without persistence or emptied, when it evicts a key, and when a replica
/// takes over that had not received the last writes. Set by
/// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Recovery {
    /// The key starts from zero at once. The default.
    ///
    /// Departures before the loss are not counted: a window that spans the loss holds up to twice what the quotas allow.
    #[default]
    Immediate,
    /// The key rests until no earlier departure counts, so that the upstream never sees more than the quotas allow.
    ///
    /// The state of each key has a generation and a version, and names the server process that wrote it. Each process
    /// remembers the generation and version that it saw last, for as long as the departures count (some 100 bytes for
    /// each key of the last window), and sends them with each call. If the state is missing, is older than that, was
    /// written by another server process, or if the server's clock was set by more than 5 ms, a new generation begins:
    /// nothing departs for the longest window, the buffer, and a second in which other processes may depart by what they
    /// were granted before. Requests keep their order. Processes with round trips above 300 ms, or with guards as long,
    /// may depart later than that.
    ///
    /// A server that was started or emptied keeps all keys at rest for that time: it writes down since when it knows
    /// every call. So a server that was never used also does so once; in a cluster, each hash slot.
    ///
    /// A key may rest without need, for example after a clean restart of the server.
    ///
    /// It does not see:
    ///
    /// - the loss of the state of a single key, by eviction or by a replica that takes over, until a process calls that
    ///   has seen a later state;
    /// - a clock that was set by less than a 2,000th of the time since it was last read, as it may have been slewed:
    ///   after ten idle minutes, 300 ms.
    ///
    /// All processes that share a key need the same recovery. A host whose clock stops while it sleeps, such as a
    /// laptop, takes the server's clock for one that was set.
    Strict,
}

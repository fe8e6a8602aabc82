//! The treatment of work whose place is lost: [`Lost`].

#[cfg(feature = "serde")]
use serde::Deserialize;

/// The treatment of work in progress whose process cannot renew the lease of its place in time, because the store is out
/// or does not answer. Set by [`LimiterBuilder::lost`](crate::LimiterBuilder::lost).
///
/// The store then gives the place to other requests. In either case, the process starts nothing new until it has called the
/// store again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Lost {
    /// The work goes on: so many more than the limit may be in progress as the process has in progress. The default.
    ///
    /// When the store is back, the process takes its places again, and nothing departs until no more than the limit are in
    /// progress.
    #[default]
    Continue,
    /// The work is dropped at the end of the lease: never more than the limit are in progress, unless the process is
    /// stopped for longer than 0.3 leases.
    ///
    /// [`run`](crate::Limiter::run) fails with [`ErrorKind::LostPlace`](crate::ErrorKind::LostPlace), and the body of a response
    /// with an error. Work of your own ends by [`Place::run`](crate::Place::run).
    Abort,
}

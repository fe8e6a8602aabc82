//! The limiter on the next core, beside the present one until everything has moved over.

mod acquire;
mod control;
mod limiter;
mod peek;
mod permit;

pub use self::acquire::{Acquire, TryAcquire};
pub use self::limiter::{Limiter, LimiterBuilder};
pub use self::peek::{Peek, Snapshot};
pub use self::permit::{Decision, Limited, Permit};
pub use crate::state::{
    Command, Demand, Grant, Known, Mode, Origin, Settlement, Strict, Take, Taken,
};
pub use crate::store::StoreError;
pub use crate::stores::{Answered, Applied, Call, MemoryStore, Nudged, Operation, Store};
#[cfg(feature = "redis")]
pub use crate::stores::{
    Generation, KeyState, Keys, QuotaState, RedisStore, StoredKey, WaitingProcess,
};

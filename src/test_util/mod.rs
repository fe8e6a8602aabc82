//! For tests of your own, behind the feature `test-util`: without sleeping, and without Redis.
//!
//! | item | for |
//! | --- | --- |
//! | [`History`](history::History) | whether more than N requests ever fell into one window |
//! | [`ManualClock`] | the clock of a store, to stand still and to be set |
//! | [`FailingStore`] | what a client does while its store is out, refuses, is slow, or has lost its state |
//! | [`RecordingStore`] | how often the store is asked, for what, and what it says |
//! | [`store_contract`] | whether a [`Store`](crate::store::Store) of your own keeps what a limiter relies on |
//!
//! The stores wrap any other and compose: `RecordingStore::new(FailingStore::new(MemoryStore::new()))`. All are
//! handles, whose clones share all. The [guide](crate::testing) shows how to test a client with them.

mod clock;
mod contract;
mod failing;
pub mod history;
pub mod new;
mod recording;

pub use self::{
    clock::ManualClock,
    contract::store_contract,
    failing::{FailingStore, Fault},
    recording::{Call, Operation, RecordingStore},
};

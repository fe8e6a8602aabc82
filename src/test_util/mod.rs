//! Utilities for tests of your own, behind the feature `test-util`: without sleeping, and without Redis.
//!
//! | item | for |
//! | --- | --- |
//! | [`History`](history::History) | whether more than N requests ever fell into one window |
//! | [`ManualClock`] | a store's clock that stands still and can be set |
//! | [`FailingStore`] | what a client does while its store is out, refuses, is slow, or has lost its state, and how often the store is called |
//!
//! The store and the clock are handles, whose clones share everything. The [guide](crate::guide::testing) shows how to test a client with them.

mod failing;
pub mod history;

#[doc(inline)]
pub use crate::store::ManualClock;

pub use self::failing::{FailingStore, Fault};

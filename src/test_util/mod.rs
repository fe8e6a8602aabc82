//! For tests of your own, behind the feature `test-util`: without sleeping, and without Redis.
//!
//! | item | for |
//! | --- | --- |
//! | [`History`](history::History) | whether more than N requests ever fell into one window |
//! | [`FailingStore`] | a store that fails when the test says so |
//! | [`RecordingStore`] | a store that remembers its calls |
//! | [`ManualClock`] | the clock of a store, to stand still and to be set |
//!
//! handles, whose clones share all. The [guide](crate::testing) shows how to test a client with them.

mod clock;
mod failing;
pub mod history;
mod recording;

pub use self::{
    clock::ManualClock,
    failing::{FailingStore, Fault},
    recording::{RecordedCall, RecordedOperation, RecordingStore},
};

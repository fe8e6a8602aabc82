//! The test utilities of the next core, beside the present ones until those are deleted.

mod failing;
mod recording;

pub use self::{
    failing::{FailingStore, Fault},
    recording::{RecordedCall, RecordedOperation, RecordingStore},
};
pub use super::clock::ManualClock;
pub use super::history;

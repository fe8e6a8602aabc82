//! The test utilities of the next core, beside the present ones until those are deleted.

mod contract;
mod failing;
mod recording;

pub use self::{
    contract::{StoreHooks, store_contract, store_contract_with},
    failing::{FailingStore, Fault},
    recording::{RecordedCall, RecordedOperation, RecordingStore},
};
pub use super::clock::ManualClock;
pub use super::history;

//! For tests of your own, behind the feature `test-util`: without sleeping, and without Redis.
//!
//! | item | for |
//! | --- | --- |
//! | [`History`](history::History) | whether more than N requests ever fell into one window |
//! | [`FailingStore`] | what a client does while its store is out, refuses, is slow, or has lost its state |
//! | [`store_contract`] | whether a [`Store`](crate::store::Store) of your own keeps what a limiter relies on |

mod contract;
mod failing;
pub mod history;

pub use self::{
    contract::store_contract,
    failing::{FailingStore, Fault},
};

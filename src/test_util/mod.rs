//! For tests of your own, behind the feature `test-util`.
//!
//! | item | says |
//! | --- | --- |
//! | [`store_contract`] | whether a [`Store`](crate::store::Store) of your own keeps what a limiter relies on |
//! | [`History`](history::History) | whether more than N requests ever fell into one window |

mod contract;
pub mod history;

pub use self::contract::store_contract;

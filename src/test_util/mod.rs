//! For tests of your own.

pub mod history;

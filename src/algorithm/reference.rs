//! Naive models of the algorithms and of the ledger, which tests compare the real ones with.
//!
//! A [`Model`](model::Model) keeps every departure ever taken and not given back, trims nothing, and
//! answers from the definition of its algorithm, by trying one time after the other. It shares no
//! code with what it judges.

mod counts;
mod joint;
mod ledger;
mod model;
mod windows;

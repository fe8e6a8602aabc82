//! What an upstream says wins over what was configured, in every replica.

#[path = "../support/mod.rs"]
mod support;

mod provider;
mod redirects;
mod replicas;
mod retries;
mod services;
mod words;

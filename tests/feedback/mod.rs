//! The limits of an upstream win over the configuration, in every replica.

mod services;
mod words;

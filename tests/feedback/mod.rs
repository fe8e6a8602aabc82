//! The limits of an upstream win over the configuration, in every replica.

mod redirects;
mod replicas;
mod retries;
mod services;
mod words;

//! The utilities for users' tests do what they promise.

mod clock;
mod failing;

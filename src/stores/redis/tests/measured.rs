//! How long the scripts take.

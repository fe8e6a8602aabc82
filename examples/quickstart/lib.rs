//! A separate package, so that the example builds with few dependencies. See `quickstart.rs`.

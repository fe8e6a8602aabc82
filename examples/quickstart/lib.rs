//! A package of its own, so that the example needs no more than it uses. See `quickstart.rs`.

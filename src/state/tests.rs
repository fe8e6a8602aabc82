//! The promises of [`State`], for random histories of several processes.

use proptest::prelude::*;

use super::*;

#[test]
fn a_state_without_departures_is_encoded_and_decoded() {}

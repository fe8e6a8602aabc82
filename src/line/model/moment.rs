//! When something happens, on each clock: [`At`].

use std::time::Duration;

use tokio::time::Instant;

use super::fault::Fault;
use super::setup::{EPOCH, START};
use crate::algorithm::micros;

/// A moment, and what is wrong with the code.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) tick: u64,
    pub(super) now: Instant,
    pub(super) length: Duration,
    pub(super) fault: Option<Fault>,
}

impl At {
    /// What the store's clock shows.
    pub(super) fn store(&self) -> u64 {
        EPOCH + micros(self.now - *START)
    }

    pub(super) fn instant(&self, tick: u64) -> Instant {
        self.now - self.length * u32::try_from(self.tick - tick).expect("a tick of late")
    }
}

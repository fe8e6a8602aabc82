//! A timer of the runtime that polls it: [`Alarm`].

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// Each poll sets a timer of the current runtime, as one of a runtime that has shut down would panic.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready from then on. Outside of a runtime, there are no timers: then it wakes no task.
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let runtime = Handle::try_current();
        self.0 = runtime.ok().map(|_| Box::pin(sleep_until(at)));
        match &mut self.0 {
            Some(timer) => timer.as_mut().poll(cx),
            None if Instant::now() < at => Poll::Pending,
            None => Poll::Ready(()),
        }
    }
}

//! Signals that terminate the process: [`Signals`].

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals whose default action would end the process without restoring the terminal.
pub(super) struct Signals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    /// Replaces the default actions, which end the process.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal. Returns 128 plus its number, like a shell.
    pub(super) async fn recv(&mut self) -> u8 {
        let number = tokio::select! {
            _ = self.hangup.recv() => SignalKind::hangup(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.quit.recv() => SignalKind::quit(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        u8::try_from(128 + number.as_raw_value()).unwrap_or(u8::MAX)
    }
}

//! Signals that ask the process to end: [`Signals`].

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Those that would end the process and leave the terminal as it is.
pub(super) struct Signals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    /// From here on, they end nothing by themselves.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The exit code that a shell gives a process which ended by what arrives.
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

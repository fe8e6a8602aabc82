//! Messages to other processes: [`Nudge`].

use crate::algorithm::{Command, NextProcesses, Reader, Taken, Writer};
use crate::key::Key;

use super::{Call, Operation};

/// The message that others may depart earlier from a key than they expect; see [`Store::subscribe`](super::Store::subscribe).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nudge {
    pub(crate) key: Key,
    /// The processes that it is for; 0 for all.
    pub(crate) next: NextProcesses,
}

impl Call {
    /// The message to other processes after this call, if there is one.
    pub fn nudge(&self, answer: &Taken) -> Option<Nudge> {
        let next = match &self.operation {
            Operation::Take(_) => answer.next?,
            Operation::Control(Command::Resume | Command::Reset) => NextProcesses::default(),
            Operation::Control(_) => return None,
        };
        let key = self.key.clone();
        Some(Nudge { key, next })
    }
}

impl Nudge {
    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.put([7; 2], self.next);
        out.0.extend_from_slice(self.key.as_str().as_bytes());
        out.0
    }

    /// Reads a message. Returns `None` if it is another one.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut message = Reader(message);
        let next = message.numbers([7; 2]).ok()?;
        let key = Key::new(str::from_utf8(message.0).ok()?);
        Some(Self { key, next })
    }
}

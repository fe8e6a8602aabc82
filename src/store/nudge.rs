//! Messages to other processes: [`Nudge`].

use crate::algorithm::{Command, LANE_BITS, Reader, Taken, Writer};
use crate::key::Key;

use super::{Call, Operation};

/// The message that a process may depart earlier from a key than it expects; see [`Store::subscribe`](super::Store::subscribe).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nudge {
    pub(crate) key: Key,
    /// The process that it is for, with its lane; 0 for all.
    pub(crate) process: u64,
}

impl Call {
    /// The messages to other processes after this call.
    pub fn nudges(&self, answer: &Taken) -> Vec<Nudge> {
        let processes = match &self.operation {
            Operation::Take(_) => &answer.nudged[..],
            Operation::Control(Command::Resume | Command::Reset) => &[0],
            Operation::Control(_) => &[],
        };
        let nudge = |&process| Nudge {
            key: self.key.clone(),
            process,
        };
        processes.iter().map(nudge).collect()
    }
}

impl Nudge {
    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The process that has [subscribed](super::Store::subscribe) with this number; `None` for all.
    pub fn process(&self) -> Option<u64> {
        Some(self.process >> LANE_BITS << LANE_BITS).filter(|process| *process > 0)
    }

    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.put([7], [self.process]);
        out.0.extend_from_slice(self.key.as_str().as_bytes());
        out.0
    }

    /// Reads a message. Returns `None` if it is another one.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut message = Reader(message);
        let [process] = message.numbers([7]).ok()?;
        let key = Key::new(str::from_utf8(message.0).ok()?);
        Some(Self { key, process })
    }
}

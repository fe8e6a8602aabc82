//! Messages to other processes: [`Nudge`].

use crate::algorithm::{Command, Reader, Taken, Writer};
use crate::key::Key;

use super::{Call, Operation};

/// The message that others may depart earlier from a key than they expect; see [`Store::subscribe`](super::Store::subscribe).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nudge {
    pub(crate) key: Key,
    /// The processes that it is for; none for all.
    pub(crate) processes: Vec<u64>,
}

impl Call {
    /// The message to other processes after this call, if there is one.
    pub fn nudge(&self, answer: &Taken) -> Option<Nudge> {
        let is_sent = match &self.operation {
            Operation::Take(_) => !answer.next.is_empty(),
            Operation::Control(command) => matches!(command, Command::Resume | Command::Reset),
        };
        is_sent.then(|| Nudge {
            key: self.key.clone(),
            processes: answer.next.clone(),
        })
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
        out.put([1], [self.processes.len() as u64]);
        self.processes.iter().for_each(|&it| out.put([7], [it]));
        out.0.extend_from_slice(self.key.as_str().as_bytes());
        out.0
    }

    /// Reads a message. Returns `None` if it is another one.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut message = Reader(message);
        let [count] = message.numbers([1]).ok()?;
        let processes = message.list(count as usize, [7]).ok()?.flatten().collect();
        let key = Key::new(str::from_utf8(message.0).ok()?);
        Some(Self { key, processes })
    }
}

//! What a command prints, as text or as JSON: [`Output`].

use std::io::{self, Write};

use anstream::AutoStream;
use serde::Serialize;

use crate::failure::Failure;

/// The standard output.
pub(crate) struct Output {
    json: bool,
    stdout: AutoStream<io::Stdout>,
    is_closed: bool,
}

/// What a command has found, as one object of JSON or as text.
pub(crate) trait Report: Serialize {
    /// Writes it for people, with styles, which are left out where nobody would see them.
    fn write(&self, text: &mut dyn Write) -> io::Result<()>;
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            stdout: anstream::stdout(),
            is_closed: false,
        }
    }

    /// Whether JSON is asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether nobody reads any more, so that there is no use in going on.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints what was found, at once and as a whole.
    pub(crate) fn show(&mut self, report: &impl Report) -> Result<(), Failure> {
        let mut text = Vec::new();
        let written = if self.json {
            let line = serde_json::to_writer(&mut text, report).map_err(io::Error::from);
            line.map(|()| text.push(b'\n'))
        } else {
            report.write(&mut text)
        };
        written.map_err(|error| unwritten(&error))?;
        self.print(&text)
    }

    /// Prints this as it is, but for styles. A reader who has seen enough is no failure, and what is
    /// printed after that is for nobody.
    fn print(&mut self, text: &[u8]) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        let printed = self.stdout.write_all(text);
        match printed.and_then(|()| self.stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            printed => printed.map_err(|error| unwritten(&error)),
        }
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new("the output cannot be written").caused_by(error)
}

//! Prints the results of commands as text or JSON: [`Output`].

use std::io::{self, Write};

use anstream::AutoStream;
use serde::Serialize;

use crate::failure::Failure;

/// Standard output.
pub(crate) struct Output {
    json: bool,
    stdout: AutoStream<io::Stdout>,
    is_closed: bool,
}

/// A result that can be printed as one JSON object or as text.
pub(crate) trait Report: Serialize {
    /// Writes the text form, with styles. Standard output removes the styles if it is not a terminal.
    fn write(&self, text: &mut dyn Write) -> io::Result<()>;
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            // JSON has no styles, but may contain control characters.
            stdout: match json {
                true => AutoStream::always_ansi(io::stdout()),
                false => anstream::stdout(),
            },
            is_closed: false,
        }
    }

    /// True if `--json` is given.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// True if the reader has closed the pipe. Further output is discarded.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints a result with one write.
    pub(crate) fn show(&mut self, report: &impl Report) -> Result<(), Failure> {
        let mut text = Vec::new();
        let written = if self.json {
            let line = serde_json::to_writer(&mut text, report).map_err(io::Error::from);
            line.map(|()| text.push(b'\n'))
        } else {
            report.write(&mut text)
        };
        written.map_err(|error| write_failure(&error))?;
        self.print(&text)
    }

    /// Writes to standard output. A closed pipe is not an error.
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
            printed => printed.map_err(|error| write_failure(&error)),
        }
    }
}

fn write_failure(error: &io::Error) -> Failure {
    Failure::new("cannot write to standard output").caused_by(error)
}

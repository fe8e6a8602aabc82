//! What goes on while figures are collected: [`Progress`].

use std::time::Instant;

/// Says on stderr what runs now, the how manieth part of how many, and how long it has taken so far.
pub struct Progress {
    parts: usize,
    begun: usize,
    start: Instant,
}

impl Progress {
    pub fn new(parts: usize) -> Self {
        Self {
            parts,
            begun: 0,
            start: Instant::now(),
        }
    }

    /// Begins the next part.
    pub fn begin(&mut self, what: &str) {
        self.begun += 1;
        let width = self.parts.to_string().len();
        let (begun, parts) = (self.begun, self.parts);
        let elapsed = self.start.elapsed().as_secs();
        eprintln!("[{begun:>width$} of {parts}, {elapsed:>3} s] {what}");
    }
}

//! Reports progress on stderr: [`Progress`].

use std::time::Instant;

/// Prints the current part, its number, the number of parts, and the elapsed time.
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

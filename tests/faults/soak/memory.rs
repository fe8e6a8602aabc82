//! Memory over time: [`Series`], which must not grow.

use std::fs;
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    samples: Vec<u64>,
}

/// A shorter one tells nothing: half of it, and more, is warming up.
const LEAST: usize = 120;

/// A run of this length has enough samples of each process that lives through it.
pub(crate) const LONG: Duration = Duration::from_secs(240);

/// The median of the last quarter may exceed that of the second by a tenth and this, for the allocator.
const SLACK: u64 = 4 << 20;

impl Series {
    pub(crate) fn push(&mut self, bytes: u64) {
        self.samples.push(bytes);
    }

    /// The medians of the second quarter and of the last; `None` where there is too little.
    pub(crate) fn medians(&self) -> Option<[u64; 2]> {
        let quarter = self.samples.len() / 4;
        let median = |from: usize| {
            let mut samples = self.samples[from * quarter..(from + 1) * quarter].to_vec();
            samples.sort_unstable();
            samples[quarter / 2]
        };
        (self.samples.len() >= LEAST).then(|| [1, 3].map(median))
    }

    pub(crate) fn grows(&self) -> bool {
        self.medians()
            .is_some_and(|[early, late]| late > early + early / 10 + SLACK)
    }
}

/// The resident memory of a process, in bytes; `None` once it has ended.
///
/// As Linux says; nothing else is looked at.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes = line.trim().strip_suffix(" kB").expect("kilobytes");
    Some(kilobytes.parse::<u64>().expect("a number") << 10)
}

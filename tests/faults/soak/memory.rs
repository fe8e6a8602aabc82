//! The memory of processes over time, which must not grow.

use std::fs;
use std::time::Duration;

/// So many samples, one per second, tell something: half of them, and more, are warming up.
const LEAST: usize = 120;

/// A run of this length has enough samples of each process that lives through it.
pub(crate) const LONG: Duration = Duration::from_secs(240);

/// The median of the last quarter may exceed that of the second by a tenth and this, for the allocator.
const SLACK: u64 = 4 << 20;

/// The medians of the second quarter and of the last; `None` where there is too little.
pub(crate) fn medians(samples: &[u64]) -> Option<[u64; 2]> {
    let quarter = samples.len() / 4;
    let median = |from: usize| {
        let mut samples = samples[from * quarter..(from + 1) * quarter].to_vec();
        samples.sort_unstable();
        samples[quarter / 2]
    };
    (samples.len() >= LEAST).then(|| [1, 3].map(median))
}

pub(crate) fn grows([early, late]: [u64; 2]) -> bool {
    late > early + early / 10 + SLACK
}

/// The resident memory of a process on Linux, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs, on Linux");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.expect("kilobytes").parse::<u64>();
    kilobytes.expect("a number") << 10
}

//! Judges grants by when the requests may depart, without the code that granted them.

use std::time::Duration;

use tower_throttle::Quota;
use tower_throttle::test_util::history::History;

/// The span in which one request may depart, and arrive upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departure {
    pub(super) from: u64,
    /// The end of the guard, and of the buffer behind it.
    pub(super) until: u64,
    pub(super) units: u32,
}

/// Why these departures may break the promise of a quota, if they may.
///
/// A quota is broken by requests that depart close together. So for the latest departure of each request, those that
/// can depart before it do so as late as they can, and the others as early as they can from then on. In windows of the
/// clock, the same for the start of each window.
pub(super) fn fault(quota: &Quota, departures: &[Departure]) -> Option<String> {
    let mut pivots: Vec<u64> = departures.iter().map(|it| it.until).collect();
    let window = quota.window().as_micros() as u64;
    let (first, last) = (*pivots.iter().min()?, *pivots.iter().max()?);
    pivots.extend((first / window..=last / window).map(|nth| nth * window));
    pivots.sort_unstable();
    pivots.dedup();
    pivots.iter().find_map(|&pivot| {
        let times = departures.iter().map(|it| {
            let at = if it.until < pivot {
                it.until
            } else {
                it.from.max(pivot)
            };
            (Duration::from_micros(at), u64::from(it.units))
        });
        let fault = times.collect::<History>().fault(quota)?;
        let early = departures.iter().filter(|it| it.until < pivot).count();
        Some(format!(
            "{quota}: {fault}, if {early} requests depart as late as they may, and the others from {pivot} on"
        ))
    })
}

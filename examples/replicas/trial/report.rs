//! The result of a run: [`Report`].

use std::fmt;

use anyhow::ensure;
use tower_throttle::test_util::history::History;

use super::command_stats::Calls;
use super::{Limit, Setup};

pub(crate) struct Report {
    limit: Limit,
    processes: u32,
    callers: u32,
    requests: u32,
    total_s: f64,
    pub(crate) most_in_window: u64,
    pub(crate) calls: Calls,
    pub(crate) failed: u64,
}

impl Report {
    pub(crate) fn new(setup: &Setup, history: &History, calls: Calls, failed: u64) -> Self {
        Self {
            limit: setup.limit.clone(),
            processes: setup.processes,
            callers: setup.callers,
            requests: setup.requests,
            total_s: history.span().unwrap_or_default().as_secs_f64(),
            most_in_window: history.most_in_any(setup.limit.window),
            calls,
            failed,
        }
    }

    /// The mean time for as many requests as the limit. The first request only starts the clock.
    pub(crate) fn seconds_per_window(&self) -> f64 {
        self.total_s * f64::from(self.limit.limit) / f64::from(self.requests - 1)
    }

    fn buffer_ms(&self) -> f64 {
        self.limit.buffer.as_secs_f64() * 1e3
    }

    /// The report as one line of JSON.
    pub(crate) fn json(&self) -> String {
        let fields = [
            ("window_s", format!("{:?}", self.limit.window.as_secs_f64())),
            ("limit", self.limit.limit.to_string()),
            ("processes", self.processes.to_string()),
            ("callers", self.callers.to_string()),
            ("requests", self.requests.to_string()),
            ("buffer_ms", self.buffer_ms().to_string()),
            ("total_s", format!("{:.4}", self.total_s)),
            (
                "seconds_per_window",
                format!("{:.4}", self.seconds_per_window()),
            ),
            ("most_in_window", self.most_in_window.to_string()),
            ("store_calls", self.calls.of_scripts().to_string()),
            ("redis_commands", self.calls.of_clients().to_string()),
            ("failed", self.failed.to_string()),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.join(","))
    }

    /// Fails if more requests arrived than the limit allows, or if a request failed.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        let Self {
            most_in_window,
            failed,
            ..
        } = self;
        let Limit { window, limit, .. } = self.limit;
        ensure!(
            *most_in_window <= u64::from(limit),
            "{most_in_window} requests arrived within {window:?}, more than the limit of {limit}"
        );
        ensure!(*failed == 0, "{failed} requests failed");
        Ok(())
    }
}

/// The result as a table row with a header.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            ("window", format!("{:?}", self.limit.window)),
            ("limit", self.limit.limit.to_string()),
            ("processes", self.processes.to_string()),
            ("callers", self.callers.to_string()),
            ("requests", self.requests.to_string()),
            ("buffer", format!("{:?}", self.limit.buffer)),
            ("total", format!("{:.2}s", self.total_s)),
            ("per window", format!("{:.3}s", self.seconds_per_window())),
            ("most in window", self.most_in_window.to_string()),
            ("store calls", self.calls.of_scripts().to_string()),
            ("redis commands", self.calls.of_clients().to_string()),
            ("failed", self.failed.to_string()),
        ];
        let width = |(name, value): &(&str, String)| name.len().max(value.len());
        let names = columns.iter().map(|it| format!("{:>1$}", it.0, width(it)));
        let values = columns.iter().map(|it| format!("{:>1$}", it.1, width(it)));
        writeln!(f, "{}", names.collect::<Vec<_>>().join("  "))?;
        write!(f, "{}", values.collect::<Vec<_>>().join("  "))
    }
}

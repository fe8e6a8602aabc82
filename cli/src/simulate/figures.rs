//! The results of a simulation: [`Figures`].

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tower_throttle::test_util::history::History;
use tower_throttle::{Policy, Quota};

use super::Args;
use super::load::{Cut, Departed, Run};
use crate::output::Report;
use crate::plot;
use crate::time::{seconds, span};

#[derive(Serialize)]
pub(super) struct Figures {
    callers: u32,
    replicas: u32,
    cost: u32,
    #[serde(rename = "latency_seconds", serialize_with = "as_seconds")]
    latency: Duration,
    #[serde(rename = "duration_seconds", serialize_with = "as_seconds")]
    duration: Duration,
    quotas: Vec<QuotaUse>,
    /// Why the simulation stopped early, if it did.
    pub(super) cut: Option<Cut>,
    departed: usize,
    refused: usize,
    waiting: usize,
    rate: Rate,
    /// The waits of the departed requests; `None` if none departed.
    #[serde(rename = "wait_seconds")]
    waits: Option<Waits>,
    #[serde(rename = "departures_seconds")]
    departures: Vec<f64>,
}

/// The use of a quota.
#[derive(Serialize)]
struct QuotaUse {
    quota: String,
    #[serde(rename = "window_seconds", serialize_with = "as_seconds")]
    window: Duration,
    /// The highest total cost in any window of this length.
    most_in_any_window: u64,
}

/// Cost per second.
#[derive(Serialize)]
struct Rate {
    /// `None` if no virtual time has passed.
    reached: Option<f64>,
    /// N/W of the slowest quota, of those whose window is not longer than the simulation.
    quota: Option<f64>,
}

#[derive(Serialize)]
struct Waits {
    #[serde(serialize_with = "as_seconds")]
    mean: Duration,
    #[serde(serialize_with = "as_seconds")]
    p50: Duration,
    #[serde(serialize_with = "as_seconds")]
    p99: Duration,
    #[serde(serialize_with = "as_seconds")]
    longest: Duration,
}

impl Figures {
    pub(super) fn new(args: &Args, cost: u32, policy: &Policy, run: &Run) -> Self {
        let mut history = History::new();
        for departed in &run.departures {
            history.push_weighted(departed.at, cost.into());
        }
        let usage = |quota: &Quota| QuotaUse {
            quota: quota.to_string(),
            window: quota.window(),
            most_in_any_window: history.most_in_any(quota.window()),
        };
        let per_second = |quota: &Quota| f64::from(quota.limit()) / seconds(quota.window());
        let has_passed = |quota: &&Quota| quota.window() <= run.lasted;
        let complete = policy.quotas().iter().filter(has_passed);
        let has_lasted = !run.lasted.is_zero();
        let departures = run.departures.iter();
        Self {
            callers: args.callers,
            replicas: args.replicas,
            cost,
            latency: args.latency,
            duration: run.lasted,
            cut: run.cut,
            quotas: policy.quotas().iter().map(usage).collect(),
            departed: run.departures.len(),
            refused: run.refused,
            waiting: run.waiting,
            rate: Rate {
                reached: has_lasted.then(|| history.weight() as f64 / seconds(run.lasted)),
                quota: complete.map(per_second).reduce(f64::min),
            },
            waits: Waits::of(&run.departures),
            departures: departures.map(|departed| seconds(departed.at)).collect(),
        }
    }
}

impl Waits {
    fn of(departures: &[Departed]) -> Option<Self> {
        let mut waits: Vec<_> = departures.iter().map(|departed| departed.waited).collect();
        waits.sort_unstable();
        let longest = *waits.last()?;
        // The nearest-rank percentile.
        let percentile = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
        let count = u32::try_from(waits.len()).unwrap_or(u32::MAX);
        Some(Self {
            mean: waits.iter().sum::<Duration>() / count,
            p50: percentile(50),
            p99: percentile(99),
            longest,
        })
    }
}

impl Report for Figures {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        writeln!(text, "Departures over time:\n")?;
        let plot = plot::departures(&self.departures, self.duration);
        writeln!(text, "{plot}")?;
        let Self { departed, .. } = self;
        write!(text, "departed  {departed} in {}", span(self.duration))?;
        for (count, what) in [(self.refused, "refused"), (self.waiting, "still waiting")] {
            if count > 0 {
                write!(text, ", {count} {what}")?;
            }
        }
        writeln!(text)?;
        if let Some(reached) = self.rate.reached {
            write!(text, "rate      {reached:.2}/s")?;
            if let Some(allowed) = self.rate.quota {
                let percent = reached / allowed * 100.0;
                write!(text, ", {percent:.1}% of {allowed:.2}/s")?;
            }
            writeln!(text)?;
        }
        for usage in &self.quotas {
            let most = usage.most_in_any_window;
            writeln!(text, "most      {most} in any window of {}", usage.quota)?;
        }
        let Some(waits) = &self.waits else {
            return Ok(());
        };
        let [mean, p50, p99, longest] = [waits.mean, waits.p50, waits.p99, waits.longest].map(span);
        writeln!(
            text,
            "waits     {mean} on average, p50 {p50}, p99 {p99}, longest {longest}"
        )
    }
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(*time))
}

//! The results of a simulation: [`Figures`].

use std::io::{self, Write};
use std::time::Duration;
use std::{array, iter};

use serde::Serialize;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Policy, Quota, Share};

use super::Args;
use super::group::Group;
use super::load::{Cut, Run};
use super::plan::Plan;
use crate::level;
use crate::output::Report;
use crate::plot;
use crate::printable::printable;
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
    #[serde(rename = "work_seconds", serialize_with = "as_seconds")]
    work: Duration,
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
    /// Empty unless the arguments name groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<GroupUse>,
    #[serde(rename = "departures_seconds")]
    departures: Vec<f64>,
}

/// The use of a quota.
#[derive(Serialize)]
#[serde(untagged)]
enum QuotaUse {
    Rate {
        quota: String,
        #[serde(rename = "window_seconds", serialize_with = "as_seconds")]
        window: Duration,
        /// The highest total cost in any window of this length.
        most_in_any_window: u64,
    },
    Concurrency {
        quota: String,
        /// The most requests in progress at once.
        most_in_progress: u64,
    },
}

/// Cost per second.
#[derive(Serialize)]
struct Rate {
    /// `None` if no virtual time has passed.
    reached: Option<f64>,
    /// N/W of the quota that is used most, of those whose window is not longer than the simulation.
    quota: Option<f64>,
}

/// The results of callers with the same priority and share.
#[derive(Serialize)]
struct GroupUse {
    priority: &'static str,
    share: Option<String>,
    weight: Option<u32>,
    callers: u32,
    departed: usize,
    /// Cost per second.
    rate: Option<f64>,
    /// Part of all departures.
    part: Option<f64>,
    #[serde(rename = "wait_seconds")]
    waits: Option<Waits>,
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
    pub(super) fn new(args: &Args, plan: &Plan, policy: &Policy, run: &Run) -> Self {
        let Plan { cost, groups, .. } = plan;
        let cost_of = |unit: &str| run.costs.get(unit).copied();
        let cost = cost_of("requests").or(*cost).unwrap_or(1);
        let history: History = run.departures.iter().map(|departed| departed.at).collect();
        let most_in = |quota: &Quota| {
            let cost = cost_of(quota.unit_name()).unwrap_or(0);
            history.most_in_any(quota.window()) * u64::from(cost)
        };
        let is_rate = |quota: &Quota| !matches!(quota.counted_by(), Algorithm::Concurrent { .. });
        let usage = |quota: &Quota| match is_rate(quota) {
            true => QuotaUse::Rate {
                quota: quota.to_string(),
                window: quota.window(),
                most_in_any_window: most_in(quota),
            },
            false => QuotaUse::Concurrency {
                quota: quota.to_string(),
                most_in_progress: run.most_in_progress,
            },
        };
        let per_second = |quota: &Quota| f64::from(quota.limit()) / seconds(quota.window());
        let has_passed = |quota: &&Quota| quota.window() <= run.lasted;
        let rates = policy.quotas().iter().filter(|quota| is_rate(quota));
        let complete = rates.filter(has_passed);
        // The quota that is used most, and the cost of a request in its unit.
        let used = |quota: &Quota| {
            let cost = cost_of(quota.unit_name()).unwrap_or(0);
            let allowed = per_second(quota);
            (f64::from(cost) / allowed, cost, allowed)
        };
        let slowest = complete
            .map(used)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let rated = slowest.map_or(cost, |(_, cost, _)| cost);
        let departures = run.departures.iter();
        let is_divided = !args.priorities.is_empty() || !args.shares.is_empty();
        let all = groups.iter().enumerate().filter(|_| is_divided);
        let groups_used = all.map(|(place, group)| GroupUse::new(place, group, rated, run));
        Self {
            callers: groups.iter().map(|group| group.callers).sum(),
            replicas: args.replicas,
            cost,
            latency: args.latency,
            duration: run.lasted,
            work: args.work,
            cut: run.cut,
            quotas: policy.quotas().iter().map(usage).collect(),
            departed: run.departures.len(),
            refused: run.refused,
            waiting: run.waiting,
            rate: Rate {
                reached: rate(run.departures.len() as f64 * f64::from(rated), run),
                quota: slowest.map(|(_, _, allowed)| allowed),
            },
            waits: Waits::of(departures.clone().map(|departed| departed.waited)),
            groups: groups_used.collect(),
            departures: departures.map(|departed| seconds(departed.at)).collect(),
        }
    }
}

/// Units per second; `None` if the run was too short to tell.
fn rate(units: f64, run: &Run) -> Option<f64> {
    let lasted = seconds(run.lasted);
    (lasted > 0.0).then(|| units / lasted)
}

impl GroupUse {
    fn new(place: usize, group: &Group, cost: u32, run: &Run) -> Self {
        let departures = run.departures.iter().filter(|it| it.group == place);
        let waits: Vec<_> = departures.map(|it| it.waited).collect();
        let (departed, all) = (waits.len(), run.departures.len());
        let total = departed as f64 * f64::from(cost);
        Self {
            priority: level::name(group.priority),
            share: group.share.as_ref().map(|share| share.name().to_owned()),
            weight: group.share.as_ref().map(Share::weight),
            callers: group.callers,
            departed,
            rate: rate(total, run),
            part: (all > 0).then(|| departed as f64 / all as f64),
            waits: Waits::of(waits.into_iter()),
        }
    }

    fn cells(&self) -> [String; 8] {
        let share = || self.share.as_deref();
        let name = share().map(|name| format!("share {}", printable(name)));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let wait = |of: fn(&Waits) -> Duration| or_dash(self.waits.as_ref().map(of).map(span));
        [
            name.unwrap_or_else(|| self.priority.to_owned()),
            self.callers.to_string(),
            self.departed.to_string(),
            or_dash(self.rate.map(|rate| format!("{rate:.2}/s"))),
            or_dash(self.part.map(|part| format!("{:.1}%", part * 100.0))),
            wait(|it| it.p50),
            wait(|it| it.p99),
            wait(|it| it.longest),
        ]
    }
}

impl Waits {
    fn of(waits: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut waits: Vec<_> = waits.collect();
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
            match usage {
                QuotaUse::Rate {
                    quota,
                    most_in_any_window: most,
                    ..
                } => writeln!(text, "most      {most} in any window of {quota}")?,
                QuotaUse::Concurrency {
                    quota,
                    most_in_progress: most,
                } => writeln!(text, "most      {most} in progress at once, of {quota}")?,
            }
        }
        let Some(waits) = &self.waits else {
            return Ok(());
        };
        let [mean, p50, p99, longest] = [waits.mean, waits.p50, waits.p99, waits.longest].map(span);
        writeln!(
            text,
            "waits     {mean} on average, p50 {p50}, p99 {p99}, longest {longest}"
        )?;
        write_groups(text, &self.groups)
    }
}

/// Writes a table, with a row for each group.
fn write_groups(text: &mut dyn Write, groups: &[GroupUse]) -> io::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let head = [
        "", "callers", "departed", "rate", "part", "p50", "p99", "longest",
    ];
    let rows = groups.iter().map(GroupUse::cells);
    let rows: Vec<_> = iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 8] = array::from_fn(|column| width(column).unwrap_or(0));
    writeln!(text)?;
    for row in &rows {
        write!(text, "{:1$}", row[0], widths[0])?;
        for (cell, width) in row.iter().zip(widths).skip(1) {
            write!(text, "  {cell:>width$}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(*time))
}

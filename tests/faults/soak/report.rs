//! A summary of a run.

use std::fmt::Write as _;
use std::time::Duration;

use super::memory::{LONG, Series};
use super::phase::Phases;
use crate::stage::PROCESSES;
use support::tally::{Count, Tally};

pub(crate) fn table(phases: &Phases<'_>, tally: &Tally, took: Duration) -> String {
    let (minutes, stayed) = (took.as_secs_f64() / 60.0, phases.stayed.as_secs_f64());
    let of = |count| tally.of(count);
    let mut text = format!(
        "{minutes:.1} minutes, {} phases, {} changes of quotas\n\
         requests: {} asked, {} departed, {} dropped, {} lost\n\
         errors: {} limited, {} out, {} of unknown outcome, {} other\n\
         keys at rest are kept for {stayed:.1} s at most\n",
        phases.count,
        phases.changes,
        of(Count::Asked),
        of(Count::Departed),
        of(Count::Dropped),
        of(Count::Lost),
        of(Count::Limited),
        of(Count::Out),
        of(Count::Unknown),
        of(Count::Other),
    );
    let mut line = |what: &str, seen: &str| {
        let _ = writeln!(text, "{what:<44} {seen}");
    };
    for (name, count) in &phases.befell {
        line(name, &count.to_string());
    }
    for (number, series) in &phases.memory {
        line(&format!("memory of process {number}"), &memory(series));
    }
    line("memory of the server", &memory(&phases.server));
    text
}

/// Complaints about memory that grows, or has too few samples.
pub(crate) fn growth(phases: &Phases<'_>, took: Duration) -> Vec<String> {
    let (all, flat) = (phases.memory.len(), phases.memory.values());
    let judged = flat.filter(|it| it.medians().is_some()).count();
    let is_judged = judged >= all.min(PROCESSES - 1) && phases.server.medians().is_some();
    if took >= LONG && !is_judged {
        return vec![format!(
            "the memory of {judged} of {all} processes was judged"
        )];
    }
    let processes = phases.memory.iter();
    let processes = processes.map(|(number, series)| (format!("process {number}"), series));
    let all = processes.chain([("the server".to_owned(), &phases.server)]);
    all.filter(|(_, series)| series.grows())
        .map(|(whose, series)| format!("the memory of {whose} grows: {}", memory(series)))
        .collect()
}

fn memory(series: &Series) -> String {
    let mb = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    match series.medians() {
        Some([early, late]) => format!(
            "{:.1} MB in the second quarter, {:.1} MB in the last",
            mb(early),
            mb(late)
        ),
        None => "too short a time to tell".to_owned(),
    }
}

//! What a run has shown, for who reads it.

use std::fmt::Write as _;
use std::time::Duration;

use super::memory::{LONG, Series};
use super::phase::Phases;
use super::run::Plan;
use crate::stage::PROCESSES;
use support::tally::{Count, Tally};

/// Of the processes that live in the end: what came of their requests.
const ENDS: [(&str, Count); 11] = [
    ("asked", Count::Asked),
    ("departed", Count::Departed),
    ("dropped", Count::Dropped),
    ("forfeited", Count::Forfeited),
    ("expired", Count::Expired),
    ("not to wait", Count::Refused),
    ("error: limited", Count::Limited),
    ("error: out", Count::Out),
    ("error: outcome unknown", Count::Unknown),
    ("error: other", Count::Other),
    ("lost", Count::Lost),
];

pub(crate) fn table(plan: &Plan, phases: &Phases<'_>, tally: &Tally, took: Duration) -> String {
    let mut text = String::new();
    let mut line = |what: &str, seen: &str| {
        let _ = writeln!(text, "{what:<44} {seen}");
    };
    line("minutes", &format!("{:.1}", took.as_secs_f64() / 60.0));
    line("seed", &plan.seed.to_string());
    line(
        "phases, changes of quotas",
        &format!("{}, {}", phases.count, phases.changes),
    );
    for (what, count) in ENDS {
        line(&format!("requests {what}"), &tally.of(count).to_string());
    }
    for (name, count) in &phases.befell {
        line(&format!("fault: {name}"), &count.to_string());
    }
    for (bound, seen) in phases.kept.seen() {
        line(
            &format!("{}: most in any {:?}", bound.quota, bound.window),
            &format!(
                "strict {}, immediate {}, of {}; after losses: immediate {}, strict and untold {}",
                seen.strict, seen.calm, bound.most, seen.after_loss, seen.strict_untold
            ),
        );
    }
    for (number, series) in &phases.memory {
        line(&format!("memory of process {number}"), &memory(series));
    }
    line("memory of the server", &memory(&phases.server));
    let [most, at_first] = phases.tasks;
    line(
        "tasks at rest, at most",
        &format!("{most}, of {at_first} at first"),
    );
    let stayed = phases.stayed.as_secs_f64();
    line("keys at rest", &format!("kept for {stayed:.1} s at most"));
    text
}

/// What grows, or is not known to be flat.
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

//! The scripts, assembled for the kinds of quotas that a policy has: [`Script`].
//!
//! | mark in the Lua files | meaning |
//! | --- | --- |
//! | a line with `$` | repeated for each quota; `$` is its number |
//! | `--ring`, `--whole`, `--window` behind a line | only for quotas whose log is a ring, or is read whole, or for both; outside of algorithms, `--ring` if any log is one |
//! | `--@algorithms`, `--@demand` | the other files |
//! | `@value`, `@terms`, `@kind` | where the numbers of the quota are in the value and in the head of the calls, and its kind |
//! | `@aligned`, `@spaced` | whether the kind is so |
//! | `@head`, `@quotas` | the bytes before the rings, the number of quotas |
//! | `@numbers`, `@logs` | what `write` has returned for all quotas |

use std::collections::HashMap;
use std::sync::LazyLock;

use smallvec::SmallVec;

use crate::algorithm::{Counter, VALUE_HEAD};
use crate::lock::Mutex;

const STATE: &str = include_str!("../../algorithm/state.lua");
const DEMAND: &str = include_str!("../../algorithm/demand.lua");
const WINDOW: &str = include_str!("../../algorithm/window.lua");
const GCRA: &str = include_str!("../../algorithm/gcra.lua");
const FIXED: &str = include_str!("../../algorithm/fixed.lua");

/// The bytes of the head of a call before the terms of the quotas.
pub(super) const CALL_HEAD: usize = 37;

/// A script and its SHA-1 digest, by which servers know it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

impl Script {
    /// The script for these quotas. All policies with the same kinds share one.
    pub(super) fn of(counters: &[Counter]) -> &'static Self {
        type Known = Mutex<HashMap<SmallVec<[u8; 8]>, &'static Script>>;
        static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);
        let kinds: SmallVec<[u8; 8]> = counters.iter().map(Counter::kind).collect();
        let mut known = KNOWN.lock();
        if let Some(script) = known.get(&kinds) {
            return script;
        }
        let text = assemble(counters, &kinds);
        let sha = redis::Script::new(&text).get_hash().to_owned();
        let script: &'static Self = Box::leak(Box::new(Self { text, sha }));
        known.insert(kinds, script);
        script
    }
}

fn is_ring(kind: u8) -> bool {
    kind == 2
}

/// The file of an algorithm, and the bytes of a quota in the value and in a call.
fn algorithm(counter: &Counter) -> (&'static str, usize, usize) {
    match counter {
        Counter::Window(_) if is_ring(counter.kind()) => (WINDOW, 40, 19),
        Counter::Window(_) => (WINDOW, 18, 19),
        Counter::Gcra(_) => (GCRA, 26, 12),
        Counter::Fixed(_) => (FIXED, 37, 12),
    }
}

fn assemble(counters: &[Counter], kinds: &[u8]) -> String {
    let mut algorithms = String::new();
    let (mut value, mut terms) = (VALUE_HEAD, CALL_HEAD);
    for (counter, number) in counters.iter().zip(1..) {
        let (text, value_bytes, terms_bytes) = algorithm(counter);
        let kind = counter.kind();
        for (line, _) in lines(text, |tag| has_tag(kind, tag)) {
            let line = line
                .replace('$', &format!("{number}"))
                .replace("@value", &format!("{}", value + 1))
                .replace("@terms", &format!("{}", terms + 1))
                .replace("@kind", &format!("{kind}"))
                .replace("@aligned", if kind == 4 { "true" } else { "false" })
                .replace("@spaced", if kind == 6 { "true" } else { "false" });
            push(&mut algorithms, &line);
        }
        value += value_bytes;
        terms += terms_bytes;
    }
    let all = |name: &str| {
        let each = (1..=kinds.len()).map(|number| format!("{name}{number}"));
        each.collect::<Vec<_>>().join(" .. ")
    };
    let has_ring = kinds.iter().copied().any(is_ring);
    let mut script = String::new();
    for (line, tag) in lines(STATE, |tag| tag == "window" || (tag == "ring") == has_ring) {
        match line {
            "--@algorithms" => script.push_str(&algorithms),
            "--@demand" => lines(DEMAND, |_| true).for_each(|(line, _)| push(&mut script, line)),
            _ if line.contains('$') => {
                let quotas = kinds.iter().copied().zip(1..);
                let quotas = quotas.filter(|&(kind, _)| tag != "window" || has_tag(kind, tag));
                for (_, number) in quotas {
                    push(&mut script, &line.replace('$', &format!("{number}")));
                }
            }
            _ => {
                let line = line
                    .replace("@head", &format!("{value}"))
                    .replace("@quotas", &format!("{}", kinds.len()))
                    .replace("@numbers", &all("numbers"))
                    .replace("@logs", &all("log"));
                push(&mut script, &line);
            }
        }
    }
    script
}

fn has_tag(kind: u8, tag: &str) -> bool {
    match tag {
        "ring" => is_ring(kind),
        "whole" => kind == 1,
        _ => kind <= 2,
    }
}

fn push(script: &mut String, line: &str) {
    script.push_str(line);
    script.push('\n');
}

/// The lines without comments and indentation, each with its tag; of those with a tag the ones that apply.
fn lines(
    text: &'static str,
    applies: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = text.lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("-- "));
    let code = code.map(|line| line.rsplit_once(" --").unwrap_or((line, "")));
    code.filter(move |(_, tag)| tag.is_empty() || applies(tag))
}

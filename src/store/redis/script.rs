//! The scripts, assembled for the kinds of quotas that a policy has, and their units: [`Script`].
//!
//! | mark in the Lua files | meaning |
//! | --- | --- |
//! | a line with `$` | repeated for each quota; `$` is its number |
//! | `--ring`, `--whole`, `--window` behind a line | only for quotas whose log is a ring, or is read whole, or for both; outside of algorithms, `--ring` if any log is one |
//! | `--unit`, `--units` behind a line | only if the policy counts one unit, or several |
//! | `--places` behind a line | only if a quota limits how many requests are in progress |
//! | a line with `&` | repeated for each unit; `&` is its number |
//! | `<<X\|J>>` | X for each unit, joined by J; by a comma without `\|` |
//! | `@unit` in a line with `$` | the number of the quota's unit |
//! | `@one&` | a cost of 1 in one unit |
//! | `@place` | the number of the unit of requests in progress |
//! | `@units`, `@step` | the number of units, the numbers of a point |
//! | `@sums`, `@costs`, `@allowed` | formats of each unit |
//! | `@point`, `@demand`, `@detail`, `@grant` | bytes of a point, of the demand of an announcement, of its costs and the number of its points, of a grant |
//! | `@rest`, `@names` | where the points are in a call, and the names of the units |
//! | a mark in capitals | the constant of that name; see [`CONSTANTS`] |
//! | `--@algorithms`, `--@plain`, `--@demand`, `--@order`, `--@other_units`, `--@next` | the other files |
//! | `--@terms`, `--@load`, `--@room`, `--@record` | these parts of the files of the algorithms, for `plain.lua` |
//! | `@value`, `@terms`, `@kind` | where the numbers of the quota are in the value and in the head of the calls, and its kind |
//! | `@aligned`, `@spaced` | true for a fixed window that begins by the clock; true for spacing and the leaky bucket |
//! | `@head`, `@last`, `@quotas` | the bytes before the tail, the last offset that is read of a value with rings, unless its tail is longer, the number of quotas |
//! | `@numbers`, `@logs` | what `write$()` has returned for all quotas, joined: their numbers, and their logs that are no rings |
//! | `@written`, `@read` | in `plain.lua`, the terms and numbers of all quotas: those to write, and those that the value has |
//! | `@formats`, `@differs`, `@flags` | in `plain.lua`, the formats of these; whether the terms in the value are other ones; the flags of the value |

use std::collections::HashMap;

use crate::algorithm::{Amounts, CONSTANTS, Counter, HEADS, Tally, Writer};
use crate::lock::Mutex;

const STATE: &str = include_str!("../../algorithm/state.lua");
const PLAIN: &str = include_str!("../../algorithm/plain.lua");
const DEMAND: &str = include_str!("../../algorithm/demand.lua");
const ORDER: &str = include_str!("../../algorithm/order.lua");
const OTHER_UNITS: &str = include_str!("../../algorithm/other_units.lua");
const NEXT: &str = include_str!("../../algorithm/next.lua");
const WINDOW: &str = include_str!("../../algorithm/window.lua");
const GCRA: &str = include_str!("../../algorithm/gcra.lua");
const FIXED: &str = include_str!("../../algorithm/fixed.lua");
const CONCURRENT: &str = include_str!("../../algorithm/concurrent.lua");

/// The bytes of the head of a call before the terms of the quotas.
pub(super) const CALL_HEAD: usize = 38;

/// How many bytes of the tail of a value with rings are read with its head.
const USUAL_TAIL: usize = 256;

/// The most quotas of a script that has `plain.lua`, as Lua limits the number of local variables.
const MOST_PLAIN: usize = 4;

/// A script and its SHA-1 digest, by which servers know it.
#[derive(Debug)]
pub(super) struct Script {
    /// The kind of each quota, and the number of its unit.
    shape: Vec<(u8, usize)>,
    pub(super) text: String,
    pub(super) sha: String,
}

impl Script {
    /// The script for these quotas. All policies with the same kinds share one.
    pub(super) fn of(counters: &[Counter]) -> &'static Self {
        // Programs use few of them.
        static KNOWN: Mutex<Vec<&'static Script>> = Mutex::new(Vec::new());
        let shape = || counters.iter().map(|it| (it.kind(), it.nth()));
        let mut known = KNOWN.lock();
        if let Some(script) = known.iter().find(|it| it.shape.iter().copied().eq(shape())) {
            return script;
        }
        let text = assemble(counters);
        let sha = redis::Script::new(&text).get_hash().to_owned();
        let shape = shape().collect();
        let script: &'static Self = Box::leak(Box::new(Self { shape, text, sha }));
        known.push(script);
        script
    }
}

fn is_ring(kind: u8) -> bool {
    kind == 2
}

/// The file of a quota's algorithm, the format of its numbers in the value, and their names in the script.
fn algorithm(counter: &Counter) -> (&'static str, &'static str, &'static str) {
    match counter.tally {
        Tally::Window(_) if is_ring(counter.kind()) => {
            let names = "count$, total$, room$, first_slot$, first$, base$, last$";
            (WINDOW, "c12I2I4I2I2I7I4I7", names)
        }
        Tally::Window(_) => (WINDOW, "c12I2I4", "count$, total$"),
        Tally::Gcra(_) => (GCRA, "c12I7I7", "due$, last$"),
        Tally::Fixed(_) => (FIXED, "c12I7I7I4I7", "start$, finish$, count$, last$"),
        Tally::Concurrent(_) => (CONCURRENT, "", ""),
    }
}

fn assemble(counters: &[Counter]) -> String {
    // The parts of the algorithms' files for all quotas.
    let mut parts: HashMap<&str, String> = HashMap::new();
    let has_ring = counters.iter().any(|it| is_ring(it.kind()));
    let mut value = Writer(vec![0; HEADS[usize::from(has_ring)]]);
    let mut head = Writer(vec![0; CALL_HEAD]);
    let mut quotas = Vec::new();
    for (counter, number) in counters.iter().zip(1..) {
        let (file, format, names) = algorithm(counter);
        let kind = counter.kind();
        let marks = [
            ("$", number.to_string()),
            ("@value", (value.0.len() + 1).to_string()),
            ("@terms", (head.0.len() + 1).to_string()),
            ("@aligned", (kind == 4).to_string()),
            ("@spaced", (kind == 6).to_string()),
        ];
        let mut part = "--@algorithms";
        for (line, _) in lines(file, |tag| has_tag(kind, tag)) {
            match line.starts_with("--@") {
                true => part = line,
                false => *parts.entry(part).or_default() += &(fill(line, &marks) + "\n"),
            }
        }
        quotas.push((number.to_string(), format, names));
        counter.encode(&mut value);
        counter.encode_terms(&mut head);
    }
    // A text for each quota, in which `#` is the names of its numbers.
    let list = |each: &str, joiner: &str| {
        let all = quotas.iter();
        let all = all.map(|(number, _, names)| each.replace('#', names).replace('$', number));
        all.collect::<Vec<_>>().join(joiner)
    };
    let units = Amounts::of(counters).units();
    let places = |it: &&Counter| matches!(it.tally, Tally::Concurrent(_));
    let place = counters.iter().find(places).map(|it| it.nth() + 1);
    let marks = [
        ("@head", value.0.len().to_string()),
        ("@quotas", counters.len().to_string()),
        ("@formats", quotas.iter().map(|quota| quota.1).collect()),
        ("@flags", if has_ring { "32" } else { "0" }.to_owned()),
        ("@last", (value.0.len() + USUAL_TAIL - 1).to_string()),
        ("@written", list("prefix$, #", ", ")),
        ("@read", list("terms$, #", ", ")),
        ("@differs", list("terms$ ~= prefix$", " or ")),
        ("@numbers", list("numbers$", " .. ")),
        ("@logs", list("log$", " .. ")),
        ("@names", (head.0.len() + 1).to_string()),
        ("@place", place.unwrap_or(0).to_string()),
        ("@allowed", "I4I7I7".repeat(units)),
        ("@units", units.to_string()),
        ("@step", (units + 1).to_string()),
        ("@point", (7 * (units + 1)).to_string()),
        ("@demand", (14 + 7 * units).to_string()),
        ("@detail", (1 + 4 * units).to_string()),
        ("@grant", (7 + 4 * units).to_string()),
        ("@rest", (18 + 4 * units).to_string()),
        ("@sums", "I7".repeat(units)),
        ("@costs", "I4".repeat(units)),
    ];
    let has_plain = units == 1 && place.is_none() && counters.len() <= MOST_PLAIN;
    let applies = |tag: &str| match tag {
        "ring" => has_ring,
        "whole" => !has_ring,
        "unit" => units == 1,
        "units" => units > 1,
        "places" => place.is_some(),
        "window" => true,
        _ => unreachable!("a comment needs a line of its own: {tag}"),
    };
    let mut script = String::new();
    for (line, tag) in lines(&join(has_plain, units > 1), applies) {
        if line.starts_with("--@") {
            script.extend(parts.get(line).map(String::as_str));
        } else if line.contains('$') {
            for (counter, number) in counters.iter().zip(1..) {
                if tag != "window" || has_tag(counter.kind(), tag) {
                    let unit = counter.nth() + 1;
                    let own = [("$", number.to_string()), ("@unit", unit.to_string())];
                    push(&mut script, fill(&fill(line, &own), &marks), units);
                }
            }
        } else {
            push(&mut script, fill(line, &marks), units);
        }
    }
    fill(
        &script,
        &CONSTANTS.map(|(mark, number)| (mark, number.to_string())),
    )
}

/// The file of the state, with the files of its parts.
fn join(has_plain: bool, has_units: bool) -> String {
    let files = [
        ("--@plain", PLAIN, has_plain),
        ("--@demand", DEMAND, true),
        ("--@order", ORDER, true),
        ("--@next", NEXT, true),
        ("--@other_units", OTHER_UNITS, has_units),
    ];
    let used = |file: &str, is_used| if is_used { file } else { "" }.to_owned();
    fill(STATE, &files.map(|(mark, file, is)| (mark, used(file, is))))
}

/// The text with marks replaced, in this order.
fn fill(text: &str, marks: &[(&str, String)]) -> String {
    let replace = |text: String, (mark, by): &(&str, String)| text.replace(mark, by);
    marks.iter().fold(text.to_owned(), replace)
}

/// Pushes a line, with its lists of units replaced.
fn push(script: &mut String, mut line: String, units: usize) {
    while let Some((before, rest)) = line.split_once("<<") {
        let (each, after) = rest.split_once(">>").expect("a list is closed");
        let (each, joiner) = each.split_once('|').unwrap_or((each, ", "));
        let all = (1..=units).map(|number| each.replace('&', &number.to_string()));
        line = format!("{before}{}{after}", all.collect::<Vec<_>>().join(joiner));
    }
    let copies = if line.contains('&') { units } else { 1 };
    for number in 1..=copies {
        let one = (1..=units).map(|other| if other == number { "1" } else { "0" });
        let one = one.collect::<Vec<_>>().join(", ");
        *script += &fill(&line, &[("@one&", one), ("&", number.to_string())]);
        script.push('\n');
    }
}

fn has_tag(kind: u8, tag: &str) -> bool {
    match tag {
        "ring" => is_ring(kind),
        "whole" => kind == 1,
        "window" => kind <= 2,
        _ => unreachable!("a comment needs a line of its own: {tag}"),
    }
}

/// The lines without comments and indentation, each with its tag; of those with a tag the ones that apply.
fn lines(text: &str, applies: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("-- "));
    let code = code.map(|line| line.rsplit_once(" --").unwrap_or((line, "")));
    code.filter(move |(_, tag)| tag.is_empty() || applies(tag))
}

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
//! | `@list(x)` | the sums `x1`, `x2` and so on, and if there are several units, `x0`, all together |
//! | `@all` | the number of the sum of all: 1, or 0 |
//! | `@one&` | a cost of 1 in one unit |
//! | `@place` | the number of the unit of requests in progress |
//! | `@units`, `@step` | the number of units, the numbers of a point |
//! | `@sums`, `@costs`, `@allowed` | formats of each unit |
//! | `@point`, `@demand`, `@detail`, `@grant` | bytes of a point, of the demand of an announcement, of the number of its call and its costs, of a grant |
//! | `@rest`, `@names` | where the points are in a call, and the names of the units |
//! | `--@algorithms`, `--@plain`, `--@demand`, `--@order`, `--@held_up`, `--@offer` | the other files |
//! | `--@terms`, `--@load`, `--@room`, `--@record` | these parts of the files of the algorithms, for `plain.lua` |
//! | `@value`, `@terms`, `@kind` | where the numbers of the quota are in the value and in the head of the calls, and its kind |
//! | `@aligned`, `@spaced` | whether the kind is so |
//! | `@head`, `@quotas` | the bytes before the rings, the number of quotas |
//! | `@numbers`, `@logs` | what `write` has returned for all quotas |
//! | `@numbers`, `@read` | in `plain.lua`, the terms and numbers of all quotas: those to write, and those that the value has |
//! | `@formats`, `@differs`, `@flags` | in `plain.lua`, the formats of these; whether the terms in the value are other ones; the flags of the value |

use std::collections::HashMap;

use crate::algorithm::{Amounts, Counter, VALUE_HEAD};
use crate::lock::Mutex;

const STATE: &str = include_str!("../../algorithm/state.lua");
const PLAIN: &str = include_str!("../../algorithm/plain.lua");
const DEMAND: &str = include_str!("../../algorithm/demand.lua");
const ORDER: &str = include_str!("../../algorithm/order.lua");
const HELD_UP: &str = include_str!("../../algorithm/held_up.lua");
const OFFER: &str = include_str!("../../algorithm/offer.lua");
const WINDOW: &str = include_str!("../../algorithm/window.lua");
const GCRA: &str = include_str!("../../algorithm/gcra.lua");
const FIXED: &str = include_str!("../../algorithm/fixed.lua");
const CONCURRENT: &str = include_str!("../../algorithm/concurrent.lua");

/// The bytes of the head of a call before the terms of the quotas.
pub(super) const CALL_HEAD: usize = 38;

/// The most quotas of a script that has `plain.lua`, as Lua limits the number of local variables.
const MOST_PLAIN: usize = 4;

/// A script and its SHA-1 digest, by which servers know it.
#[derive(Debug)]
pub(super) struct Script {
    /// The kinds of the quotas, and the numbers of their units.
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

/// The file of an algorithm, the bytes of a quota in the value and in a call, and the format and the names of its numbers.
fn algorithm(
    counter: &Counter,
) -> (
    &'static str,
    usize,
    usize,
    &'static str,
    &'static [&'static str],
) {
    match counter {
        Counter::Window(_) if is_ring(counter.kind()) => {
            let names = &["count", "total", "room", "place", "first", "base", "last"];
            (WINDOW, 40, 19, "c12I2I4I2I2I7I4I7", names)
        }
        Counter::Window(_) => (WINDOW, 18, 19, "c12I2I4", &["count", "total"]),
        Counter::Gcra(_) => (GCRA, 26, 12, "c12I7I7", &["due", "last"]),
        Counter::Fixed(_) => {
            let names = &["start", "finish", "count", "last"];
            (FIXED, 37, 12, "c12I7I7I4I7", names)
        }
        Counter::Concurrent(_) => (CONCURRENT, 14, 12, "", &[]),
    }
}

fn assemble(counters: &[Counter]) -> String {
    // The parts of the algorithms' files for all quotas.
    let mut parts: HashMap<&str, String> = HashMap::new();
    let has_ring = counters.iter().any(|it| is_ring(it.kind()));
    // The head of a value with rings has the bytes of its tail.
    let mut value = VALUE_HEAD + if has_ring { 4 } else { 0 };
    let mut terms = CALL_HEAD;
    let (mut formats, mut quotas) = (String::new(), Vec::new());
    for (counter, number) in counters.iter().zip(1..) {
        let (text, value_bytes, terms_bytes, format, names) = algorithm(counter);
        let kind = counter.kind();
        let mut part = "--@algorithms";
        for (line, _) in lines(text, |tag| has_tag(kind, tag)) {
            if line.starts_with("--@") {
                part = line;
                continue;
            }
            let line = line
                .replace('$', &format!("{number}"))
                .replace("@value", &format!("{}", value + 1))
                .replace("@terms", &format!("{}", terms + 1))
                .replace("@kind", &format!("{kind}"))
                .replace("@aligned", if kind == 4 { "true" } else { "false" })
                .replace("@spaced", if kind == 6 { "true" } else { "false" });
            push(parts.entry(part).or_default(), &line);
        }
        formats.push_str(format);
        quotas.push((number, names));
        value += value_bytes;
        terms += terms_bytes;
    }
    // A text for each quota, in which `#` is the names of its numbers.
    let list = |each: &str, joiner: &str| {
        let texts = quotas.iter().map(|(number, names)| {
            let names: String = names.iter().map(|name| format!(", {name}$")).collect();
            each.replace('#', &names).replace('$', &number.to_string())
        });
        texts.collect::<Vec<_>>().join(joiner)
    };
    let units = Amounts::of(counters).units();
    let places = |it: &&Counter| matches!(it, Counter::Concurrent(_));
    let place = counters.iter().find(places).map(|it| it.nth() + 1);
    let place_text = place.unwrap_or(0).to_string();
    let applies = |tag: &str| match tag {
        "ring" => has_ring,
        "whole" => !has_ring,
        "unit" => units == 1,
        "units" => units > 1,
        "places" => place.is_some(),
        _ => true,
    };
    let mut script = String::new();
    for (line, tag) in lines(STATE, applies) {
        match line {
            "--@algorithms" => script.push_str(&parts[line]),
            "--@plain" if units > 1 || place.is_some() || quotas.len() > MOST_PLAIN => {}
            "--@plain" => {
                for (line, _) in lines(PLAIN, applies) {
                    if line.starts_with("--@") {
                        script.extend(parts.get(line).map(String::as_str));
                        continue;
                    }
                    let line = line
                        .replace("@head", &format!("{value}"))
                        .replace("@quotas", &format!("{}", counters.len()))
                        .replace("@formats", &formats)
                        .replace("@flags", if has_ring { "32" } else { "0" })
                        .replace("@last", &format!("{}", value - 1))
                        .replace("@numbers", &list("prefix$#", ", "))
                        .replace("@read", &list("terms$#", ", "))
                        .replace("@differs", &list("terms$ ~= prefix$", " or "));
                    push(&mut script, &line);
                }
            }
            "--@demand" | "--@order" | "--@held_up" | "--@offer" => {
                let text = match line {
                    "--@demand" => DEMAND,
                    "--@order" => ORDER,
                    "--@offer" if place.is_some() => OFFER,
                    "--@held_up" if units > 1 => HELD_UP,
                    _ => "",
                };
                for (line, _) in lines(text, applies) {
                    let line = line.replace("@place", &place_text);
                    push_for_units(&mut script, &line, units);
                }
            }
            _ if line.contains('$') => {
                let quotas = counters.iter().zip(1..);
                let quotas = quotas.filter(|(it, _)| tag != "window" || has_tag(it.kind(), tag));
                for (counter, number) in quotas {
                    let unit = format!("{}", counter.nth() + 1);
                    let line = line.replace('$', &format!("{number}"));
                    push_for_units(&mut script, &line.replace("@unit", &unit), units);
                }
            }
            _ => {
                let line = line
                    .replace("@head", &format!("{value}"))
                    .replace("@quotas", &format!("{}", counters.len()))
                    .replace("@numbers", &list("numbers$", " .. "))
                    .replace("@names", &format!("{}", terms + 1))
                    .replace("@place", &place_text)
                    .replace("@logs", &list("log$", " .. "));
                push_for_units(&mut script, &line, units);
            }
        }
    }
    script
}

/// Pushes a line, with its marks of units replaced.
fn push_for_units(script: &mut String, line: &str, units: usize) {
    let several = units > 1;
    let sums = units + usize::from(several);
    let mut line = line
        .replace("@allowed", &"I4I7".repeat(units))
        .replace("@all", if several { "0" } else { "1" })
        .replace("@units", &format!("{units}"))
        .replace("@step", &format!("{}", sums + 1))
        .replace("@point", &format!("{}", 7 * (sums + 1)))
        .replace("@demand", &format!("{}", 14 + 7 * sums))
        .replace("@detail", &format!("{}", 8 + 4 * units))
        .replace("@grant", &format!("{}", 7 + 4 * units))
        .replace("@rest", &format!("{}", 18 + 4 * units))
        .replace("@sums", &"I7".repeat(sums))
        .replace("@costs", &"I4".repeat(units));
    while let Some((before, rest)) = line.split_once("@list(") {
        let (name, after) = rest.split_once(')').expect("a list is closed");
        let numbers = (1..=units).chain(several.then_some(0));
        let all = numbers.map(|number| match name {
            "0" => name.to_owned(),
            _ => format!("{name}{number}"),
        });
        line = format!("{before}{}{after}", all.collect::<Vec<_>>().join(", "));
    }
    while let Some((before, rest)) = line.split_once("<<") {
        let (each, after) = rest.split_once(">>").expect("a list is closed");
        let (each, joiner) = each.split_once('|').unwrap_or((each, ", "));
        let all = (1..=units).map(|number| each.replace('&', &format!("{number}")));
        line = format!("{before}{}{after}", all.collect::<Vec<_>>().join(joiner));
    }
    if !line.contains('&') {
        return push(script, &line);
    }
    for number in 1..=units {
        let one = (1..=units).map(|other| if other == number { "1" } else { "0" });
        let one = one.collect::<Vec<_>>().join(", ");
        let line = line.replace("@one&", &one);
        push(script, &line.replace('&', &format!("{number}")));
    }
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

//! The table of what was seen, printed and kept in the documentation.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::table;
use crate::trial::Row;
use support::tally::Count;

/// The lines around the rows in the page.
const BEGIN: &str = "<!-- measured -->\n";
const END: &str = "<!-- end -->\n";

/// The headline over the descriptions.
const DESCRIBED: &str = "# What is done\n";

const HEAD: &str = "\
| | departed during it | errors | longest wait | longest silence of a key | most in any window | \
requests lost | calls lost | connections | calls per request |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// In the order of the table of faults.
pub(crate) fn table(rows: &[Row]) -> String {
    let in_order = table::all().filter_map(|fault| rows.iter().find(|row| row.name == fault.name));
    in_order.fold(HEAD.to_owned(), |text, row| text + &line(row))
}

fn line(row: &Row) -> String {
    let tally = &row.tally;
    let allowed = row
        .allowed
        .map_or_else(|| "any".to_owned(), |allowed| allowed.to_string());
    let calls = tally.of(Count::Calls) as f64 / tally.answered() as f64;
    format!(
        "| {} | {} of {} | {} | {} | {} | {} of {allowed} | {} | {} | {} | {calls:.2} |\n",
        row.name,
        row.during,
        row.departed,
        errors(row),
        seconds(Duration::from_micros(tally.of(Count::Longest))),
        seconds(row.gap),
        row.most,
        tally.of(Count::Lost),
        tally.of(Count::LostCalls),
        row.connections,
    )
}

fn errors(row: &Row) -> String {
    let mut text = String::new();
    for (what, count) in [
        ("out", Count::Out),
        ("unknown", Count::Unknown),
        ("limited", Count::Limited),
        ("other", Count::Other),
    ] {
        let count = row.tally.of(count);
        if count > 0 {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{count} {what}");
        }
    }
    if text.is_empty() {
        text.push_str("none");
    }
    text
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

/// Writes these rows into the page, in place of those of the same faults.
pub(crate) fn write(rows: &[Row]) {
    let page = page();
    let (before, old, after) = parts(&page);
    let mut text = HEAD.to_owned();
    for fault in table::all() {
        let start = format!("| {} |", fault.name);
        if let Some(row) = rows.iter().find(|row| row.name == fault.name) {
            text.push_str(&line(row));
        } else if let Some(row) = old.lines().find(|row| row.starts_with(&start)) {
            text.push_str(row);
            text.push('\n');
        }
    }
    fs::write(path(), format!("{before}{BEGIN}\n{text}\n{END}{after}")).expect("a page to write");
}

/// The faults that the page describes, and those of which it says what was seen, in its order.
pub(crate) fn documented() -> [Vec<String>; 2] {
    let page = page();
    let (before, rows, _) = parts(&page);
    let (_, described) = before.split_once(DESCRIBED).expect("what is done");
    [described, rows].map(names)
}

/// The names of the rows of a table.
pub(crate) fn names(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with('|')).skip(2);
    let name = |row: &str| row.split('|').nth(1).map(|name| name.trim().to_owned());
    rows.filter_map(name).collect()
}

/// The text of the page between this line and the next end.
pub(crate) fn between(begin: &str) -> String {
    let page = page();
    let (_, rest) = page.split_once(begin).expect("a beginning of the rows");
    let (rows, _) = rest.split_once(END).expect("an end of the rows");
    rows.to_owned()
}

/// Writes this text there.
pub(crate) fn replace(begin: &str, text: &str) {
    let (old, new) = (
        begin.to_owned() + &between(begin),
        format!("{begin}\n{text}\n"),
    );
    fs::write(path(), page().replace(&old, &new)).expect("a page to write");
}

/// The text before the rows, the rows, and the text after them.
fn parts(page: &str) -> (&str, &str, &str) {
    let (before, rest) = page.split_once(BEGIN).expect("a beginning of the rows");
    let (rows, after) = rest.split_once(END).expect("an end of the rows");
    (before, rows, after)
}

fn page() -> String {
    fs::read_to_string(path()).expect("the page")
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "src", "docs", "faults.md"]
        .iter()
        .collect()
}

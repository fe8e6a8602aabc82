//! Prints figures and checks bounds: [`Output`].

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, Command, FromArgMatches};
use serde_json::{Map, Value, json};

#[derive(Args)]
pub struct Options {
    /// Print a line of JSON for each row and each bound
    #[arg(long)]
    json: bool,
    /// Fail if a bound is not met
    #[arg(long)]
    check: bool,
    /// Run for a tenth of the time, as a smoke test; figures are inaccurate, and bounds may be missed
    #[arg(long)]
    quick: bool,
    /// Ignored; cargo passes it to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Prints tables as they are ready, and checks the bounds at the end.
pub struct Output {
    options: Options,
    bounds: Vec<Bound>,
}

pub struct Table {
    name: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

pub enum Cell {
    Text(String),
    /// A number with this many decimal places, of which one and two are left out from 100 on.
    Number(f64, usize),
}

pub fn text(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

pub fn count(count: impl Into<f64>) -> Cell {
    Cell::Number(count.into().trunc(), 0)
}

pub fn figure(value: f64) -> Cell {
    Cell::Number(value, 1)
}

pub fn ratio(value: f64) -> Cell {
    Cell::Number(value, 2)
}

/// A bound on a figure.
struct Bound {
    claim: String,
    value: f64,
    /// "most" or "least".
    side: &'static str,
    limit: f64,
}

/// Divisor of times and counts with `--quick`.
const QUICK: u32 = 10;

impl Output {
    /// With the options of the command line.
    #[must_use]
    pub fn parse(about: &'static str) -> Self {
        let command = Command::new(env!("CARGO_PKG_NAME")).about(about);
        let matches = Options::augment_args(command).get_matches();
        Self::new(Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
    }

    pub fn new(options: Options) -> Self {
        Self {
            options,
            bounds: Vec::new(),
        }
    }

    /// This duration, reduced with `--quick`.
    pub fn time(&self, time: Duration) -> Duration {
        time / self.divisor()
    }

    /// This count, reduced with `--quick`.
    pub fn count(&self, count: u32) -> u32 {
        (count / self.divisor()).max(1)
    }

    fn divisor(&self) -> u32 {
        if self.options.quick { QUICK } else { 1 }
    }

    pub fn table(&self, table: &Table) {
        if self.options.json {
            table.lines().for_each(|line| println!("{line}"));
        } else {
            println!("{table}");
        }
    }

    pub fn at_most(&mut self, claim: impl Into<String>, value: f64, most: f64) {
        self.bound(claim.into(), value, "most", most);
    }

    pub fn at_least(&mut self, claim: impl Into<String>, value: f64, least: f64) {
        self.bound(claim.into(), value, "least", least);
    }

    fn bound(&mut self, claim: String, value: f64, side: &'static str, limit: f64) {
        self.bounds.push(Bound {
            claim,
            value,
            side,
            limit,
        });
    }

    /// Prints the bounds. Fails with `--check` if a bound is not met.
    pub fn finish(self) -> anyhow::Result<()> {
        for bound in &self.bounds {
            match self.options.json {
                true => println!("{}", bound.line()),
                false => println!("{bound}"),
            }
        }
        let missed = self.bounds.iter().filter(|bound| !bound.is_met()).count();
        let count = self.bounds.len();
        ensure!(
            missed == 0 || !self.options.check,
            "{missed} of {count} bounds are not met"
        );
        Ok(())
    }
}

impl Table {
    /// An empty table. `columns` has their names, with ` | ` between them.
    pub fn new(name: &'static str, columns: &'static str) -> Self {
        Self {
            name,
            columns: columns.split(" | ").collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, row: impl IntoIterator<Item = Cell>) {
        self.rows.push(row.into_iter().collect());
    }

    fn lines(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().map(|row| {
            let cells = self.columns.iter().zip(row);
            let cells = cells.map(|(column, cell)| (column.replace(' ', "_"), cell.json()));
            let mut line = Map::from_iter([("table".to_owned(), json!(self.name))]);
            line.extend(cells);
            Value::Object(line)
        })
    }
}

impl Cell {
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(count, 0) => json!(*count as u64),
            Self::Number(value, _) => json!((value * 1e4).round() / 1e4),
        }
    }
}

impl Bound {
    fn is_met(&self) -> bool {
        match self.side {
            "most" => self.value <= self.limit,
            _ => self.value >= self.limit,
        }
    }

    fn line(&self) -> Value {
        let mut line = json!({ "bound": self.claim, "value": self.value, "met": self.is_met() });
        line[self.side] = json!(self.limit);
        line
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.name.split_at(1);
        writeln!(f, "{}{rest}:\n", first.to_ascii_uppercase())?;
        let names = self.columns.iter().map(ToString::to_string).collect();
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(Cell::to_string).collect());
        let mut lines: Vec<Vec<String>> = [names].into_iter().chain(rows).collect();
        let width = |place: usize| lines.iter().map(move |line| line[place].len()).max();
        let widths: Vec<_> = (0..self.columns.len()).filter_map(width).collect();
        lines.insert(1, widths.iter().map(|width| "-".repeat(*width)).collect());
        for line in lines {
            for (cell, width) in line.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
        }
        Ok(())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(count, 0) => f.write_str(&in_groups(*count)),
            Self::Number(value, 1..=2) if *value >= 100.0 => f.write_str(&in_groups(*value)),
            Self::Number(value, places) => write!(f, "{value:.places$}"),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        let [value, limit] = [self.value, self.limit].map(ratio);
        let Self { claim, side, .. } = self;
        write!(f, "{verdict} {claim}: {value}, at {side} {limit}")
    }
}

/// The digits of a rounded number in groups of three: `12,345`.
fn in_groups(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

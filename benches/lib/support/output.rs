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
    columns: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

pub enum Cell {
    Text(String),
    Count(u64),
    /// Shown with one decimal place, if below 100.
    Figure(f64),
    /// Shown with two decimal places, if below 100.
    Ratio(f64),
    /// Shown with four decimal places.
    Fraction(f64),
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

impl Options {
    /// This duration, reduced with `--quick`.
    pub fn time(&self, time: Duration) -> Duration {
        time / self.divisor()
    }

    /// This count, reduced with `--quick`.
    pub fn count(&self, count: u64) -> u64 {
        (count / u64::from(self.divisor())).max(1)
    }

    fn divisor(&self) -> u32 {
        if self.quick { QUICK } else { 1 }
    }
}

impl Output {
    /// With the options of the command line. `about` is the first line of the help.
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

    pub fn table(&self, table: &Table) {
        if self.options.json {
            table.lines().for_each(|line| println!("{line}"));
        } else {
            println!("{table}");
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
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

    /// Prints the bounds.
    ///
    /// Fails with `--check` if a bound is not met.
    pub fn finish(self) -> anyhow::Result<()> {
        for bound in &self.bounds {
            if self.options.json {
                println!("{}", bound.line());
            } else {
                println!("{bound}");
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
    pub fn new(name: &'static str, columns: &'static [&'static str]) -> Self {
        let rows = Vec::new();
        Self {
            name,
            columns,
            rows,
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
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Figure(value) | Self::Ratio(value) | Self::Fraction(value) => {
                json!((value * 1e4).round() / 1e4)
            }
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
        let mut name = self.name.chars();
        let first = name.next().map(|first| first.to_ascii_uppercase());
        writeln!(f, "{}{}:\n", String::from_iter(first), name.as_str())?;
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(Cell::to_string).collect())
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|place| {
                let cells = rows
                    .iter()
                    .filter_map(|row| row.get(place))
                    .map(String::len);
                cells.chain([self.columns[place].len()]).max().unwrap_or(0)
            })
            .collect();
        for (column, width) in self.columns.iter().zip(&widths) {
            write!(f, "| {column:<width$} ")?;
        }
        writeln!(f, "|")?;
        for width in &widths {
            write!(f, "| {} ", "-".repeat(*width))?;
        }
        writeln!(f, "|")?;
        for row in &rows {
            for (cell, width) in row.iter().zip(&widths) {
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
            Self::Count(count) => f.write_str(&in_groups(*count)),
            Self::Figure(value) | Self::Ratio(value) if *value >= 100.0 => {
                f.write_str(&in_groups(value.round() as u64))
            }
            Self::Figure(value) => write!(f, "{value:.1}"),
            Self::Ratio(value) => write!(f, "{value:.2}"),
            Self::Fraction(value) => write!(f, "{value:.4}"),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        let [value, limit] = [self.value, self.limit].map(|figure| Cell::Ratio(figure).to_string());
        let Self { claim, side, .. } = self;
        write!(f, "{verdict} {claim}: {value}, at {side} {limit}")
    }
}

/// The digits in groups of three: `12,345`.
fn in_groups(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

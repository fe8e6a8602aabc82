//! How figures are shown and judged: [`Output`].

use std::fmt;

use anyhow::ensure;
use clap::Args;
use serde_json::{Map, Value, json};

#[derive(Args)]
pub(crate) struct Options {
    /// Print a line of JSON for each row and each bound
    #[arg(long)]
    json: bool,
    /// End with an error if a bound is not met
    #[arg(long)]
    check: bool,
    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Prints tables as they come, and judges the bounds at the end.
pub(crate) struct Output {
    options: Options,
    bounds: Vec<Bound>,
}

pub(crate) struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

pub(crate) enum Cell {
    Text(String),
    Count(u64),
    /// To one decimal place.
    Figure(f64),
    /// To two decimal places.
    Ratio(f64),
}

/// What a figure must not exceed.
struct Bound {
    claim: String,
    value: f64,
    most: f64,
}

impl Output {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            bounds: Vec::new(),
        }
    }

    pub(crate) fn table(&self, table: &Table) {
        if self.options.json {
            table.lines().for_each(|line| println!("{line}"));
        } else {
            println!("{table}");
        }
    }

    pub(crate) fn bound(&mut self, claim: String, value: f64, most: f64) {
        self.bounds.push(Bound { claim, value, most });
    }

    /// Prints the bounds.
    ///
    /// Fails if one is not met and that was asked for.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
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
    pub(crate) fn new(name: &'static str, columns: &'static [&'static str]) -> Self {
        let rows = Vec::new();
        Self {
            name,
            columns,
            rows,
        }
    }

    pub(crate) fn row(&mut self, row: impl IntoIterator<Item = Cell>) {
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
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Figure(value) | Self::Ratio(value) => json!((value * 1e3).round() / 1e3),
        }
    }
}

impl Bound {
    fn is_met(&self) -> bool {
        self.value <= self.most
    }

    fn line(&self) -> Value {
        let Self { claim, value, most } = self;
        json!({ "bound": claim, "value": value, "most": most, "met": self.is_met() })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        writeln!(f, "{}", self.name)?;
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
            Self::Count(count) => write!(f, "{count}"),
            Self::Figure(value) => write!(f, "{value:.1}"),
            Self::Ratio(value) => write!(f, "{value:.2}"),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, value, most } = self;
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        write!(f, "{verdict} {claim}: {value:.2}, at most {most:.2}")
    }
}

//! Prints figures and bounds: [`Output`].

use std::fmt;
use std::time::Duration;

use clap::Parser;

#[derive(Parser)]
pub struct Options {
    /// Run for a tenth of the time, as a smoke test; figures are inaccurate, and bounds may be missed
    #[arg(long)]
    quick: bool,
    /// Ignored; cargo passes it to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Prints the bounds at the end.
pub struct Output {
    options: Options,
    bounds: Vec<String>,
}

pub struct Table {
    name: &'static str,
    lines: Vec<Vec<String>>,
}

pub fn text(text: impl Into<String>) -> String {
    text.into()
}

pub fn count(count: impl Into<f64>) -> String {
    in_groups(count.into().trunc())
}

pub fn figure(value: f64) -> String {
    number(value, 1)
}

pub fn ratio(value: f64) -> String {
    number(value, 2)
}

/// With this many decimal places, or none from 100 on.
fn number(value: f64, places: usize) -> String {
    match value >= 100.0 {
        true => in_groups(value),
        false => format!("{value:.places$}"),
    }
}

impl Output {
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

    pub fn count(&self, count: u32) -> u32 {
        (count / self.divisor()).max(1)
    }

    fn divisor(&self) -> u32 {
        if self.options.quick { 10 } else { 1 }
    }

    pub fn at_most(&mut self, claim: impl fmt::Display, value: f64, most: f64) {
        let bound = format!("{claim}: {}, at most {}", ratio(value), ratio(most));
        self.bound(value <= most, bound);
    }

    pub fn at_least(&mut self, claim: impl fmt::Display, value: f64, least: f64) {
        let bound = format!("{claim}: {}, at least {}", ratio(value), ratio(least));
        self.bound(value >= least, bound);
    }

    fn bound(&mut self, is_met: bool, bound: String) {
        let verdict = if is_met { "met   " } else { "MISSED" };
        self.bounds.push(format!("{verdict} {bound}"));
    }

    pub fn finish(self) {
        self.bounds.iter().for_each(|bound| println!("{bound}"));
    }
}

impl Table {
    /// An empty table. `columns` has their names, with ` | ` between them.
    pub fn new(name: &'static str, columns: &'static str) -> Self {
        let names = columns.split(" | ").map(str::to_owned);
        Self {
            name,
            lines: vec![names.collect()],
        }
    }

    pub fn row(&mut self, row: impl Into<Vec<String>>) {
        self.lines.push(row.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.name.split_at(1);
        writeln!(f, "{}{rest}:\n", first.to_ascii_uppercase())?;
        let width = |place: usize| self.lines.iter().map(move |line| line[place].len()).max();
        let widths: Vec<_> = (0..self.lines[0].len()).filter_map(width).collect();
        let mut lines = self.lines.clone();
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

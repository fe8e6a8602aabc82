//! `throttle check`: validates rules, and finds the rule that matches a request.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use tower_throttle::rules::Warning;

use self::request::{Answer, Request};
use self::table::Row;
use crate::failure::Failure;
use crate::file::{Format, Mistake, RulesFile};
use crate::output::{Output, Report};
use crate::printable::{printable, printable_lines};

mod request;
mod table;

/// Validate a rules file, and find the rule that matches a request
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file, or - for standard input
    file: PathBuf,

    /// The format of the file, unless its name ends in .toml, .yaml, .yml or .json
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Fail on warnings, such as for a rule that no request can reach
    #[arg(long)]
    deny_warnings: bool,

    #[command(flatten)]
    request: Option<Request>,
}

/// The rules of a file, with its mistakes and warnings.
#[derive(Serialize)]
struct Checked {
    file: String,
    mistakes: Vec<Mistake>,
    warnings: Vec<Unreached>,
    rules: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Answer>,
}

/// A rule that no request can reach.
#[derive(Serialize)]
struct Unreached {
    rule: usize,
    name: Option<String>,
    /// The rule that takes all of its requests.
    by: usize,
    #[serde(rename = "warning")]
    text: String,
}

pub(crate) fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let request = args.request.as_ref().map(Request::build).transpose()?;
    let file = RulesFile::open(&args.file, args.format)?;
    let mut may_hide_others = false;
    let checked = match file.rules() {
        Ok(rules) => Checked {
            mistakes: Vec::new(),
            warnings: rules.warnings().iter().map(Unreached::from).collect(),
            rules: table::of(&file.fields()),
            request: request.map(|request| Answer::of(&rules, &request)),
            file: file.name,
        },
        Err(mistakes) => {
            may_hide_others = mistakes.may_hide_others;
            Checked {
                file: file.name,
                mistakes: mistakes.found,
                warnings: Vec::new(),
                rules: Vec::new(),
                request: None,
            }
        }
    };
    output.show(&checked)?;
    let (mistakes, warnings) = (checked.mistakes.len(), checked.warnings.len());
    if may_hide_others {
        let file = &checked.file;
        return Err(Failure::new(format!(
            "{file} has a mistake; there may be more after it"
        )));
    }
    if mistakes > 0 {
        return Err(Failure::new(checked.counted(mistakes, "mistake")));
    }
    if warnings > 0 && args.deny_warnings {
        return Err(Failure::new(checked.counted(warnings, "warning")));
    }
    if let Some(why) = checked.request.and_then(|request| request.refused) {
        return Err(Failure::new(format!("the request is refused: {why}")));
    }
    Ok(())
}

impl Checked {
    fn counted(&self, count: usize, what: &str) -> String {
        let s = if count == 1 { "" } else { "s" };
        format!("{} has {count} {what}{s}", self.file)
    }
}

impl From<&Warning> for Unreached {
    fn from(warning: &Warning) -> Self {
        Self {
            rule: warning.rule.place(),
            name: warning.rule.name().map(str::to_owned),
            by: warning.by.place(),
            text: warning.to_string(),
        }
    }
}

impl Report for Checked {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        for Mistake { place, problem } in &self.mistakes {
            let colon = if place.is_empty() { "" } else { ": " };
            let (place, problem) = (printable(place), printable_lines(problem));
            writeln!(text, "{place}{colon}{problem}")?;
        }
        table::write(text, &self.rules)?;
        for warning in &self.warnings {
            writeln!(text, "\nwarning: {}", printable(&warning.text))?;
        }
        match &self.request {
            Some(answer) => writeln!(text, "\n{}", printable_lines(&answer.text)),
            None => Ok(()),
        }
    }
}

//! A rules file in TOML, YAML or JSON: [`RulesFile`].

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, stdin};
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use serde_saphyr::with_deserializer_from_str_with_options;
use tower_throttle::rules::{Rules, RulesError};

use crate::failure::Failure;

/// The hint for a file of an unknown format.
const FORMATS: &str =
    "pass `--format toml`, `yaml` or `json` to `throttle check`, or rename the file";

/// The path that means standard input.
const STDIN: &str = "-";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Toml,
    Yaml,
    Json,
}

/// The text of a file, not yet parsed.
pub(crate) struct RulesFile {
    pub(crate) name: String,
    format: Format,
    text: String,
}

/// A problem, and its place in the file.
#[derive(Debug, Serialize)]
pub(crate) struct Mistake {
    /// Such as `rules[2].quota`; empty for a syntax error.
    pub(crate) place: String,
    pub(crate) problem: String,
}

/// All mistakes of a file, or only the first one.
pub(crate) struct Mistakes {
    pub(crate) found: Vec<Mistake>,
    /// True if parsing stopped at the first mistake.
    pub(crate) may_hide_others: bool,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let extension = path.extension().and_then(OsStr::to_str)?;
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

impl RulesFile {
    /// Reads the text of a file or of standard input.
    pub(crate) fn open(path: &Path, format: Option<Format>) -> Result<Self, Failure> {
        let is_stdin = path == Path::new(STDIN);
        let name = if is_stdin {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        let Some(format) = format.or_else(|| Format::of(path)) else {
            let problem = format!("the format of {name} is unknown");
            return Err(Failure::usage(problem).hint(FORMATS));
        };
        let text = if is_stdin {
            let mut text = String::new();
            stdin().read_to_string(&mut text).map(|_| text)
        } else {
            fs::read_to_string(path)
        };
        match text {
            Ok(text) => Ok(Self { name, format, text }),
            Err(error) => Err(Failure::new(format!("{name} cannot be read")).caused_by(&error)),
        }
    }

    /// Parses the rules.
    pub(crate) fn rules(&self) -> Result<Rules, Mistakes> {
        let text = &self.text;
        match self.format {
            Format::Toml => match toml::Deserializer::parse(text) {
                Ok(document) => Rules::read(document).map_err(mistakes),
                Err(error) => Err(syntax_error(error)),
            },
            Format::Yaml => {
                let mut rules = None;
                let options = yaml_options();
                let read = with_deserializer_from_str_with_options(text, options, |document| {
                    rules = Some(Rules::read(document));
                    Ok(())
                });
                match (rules, read) {
                    (Some(Err(error)), _) => Err(mistakes(error)),
                    (Some(Ok(rules)), Ok(())) => Ok(rules),
                    (_, Err(error)) => Err(syntax_error(error)),
                    (None, Ok(())) => Err(syntax_error("the file is empty")),
                }
            }
            Format::Json => {
                let mut document = serde_json::Deserializer::from_str(text);
                let rules = Rules::read(&mut document).map_err(mistakes)?;
                document.end().map_err(syntax_error)?;
                Ok(rules)
            }
        }
    }

    /// The fields of each rule, in the form in which the file has them. The file must have no mistakes.
    pub(crate) fn fields(&self) -> Vec<Value> {
        let text = &self.text;
        let written = match self.format {
            Format::Toml => toml::from_str(text).ok(),
            Format::Yaml => serde_saphyr::from_str_with_options(text, yaml_options()).ok(),
            Format::Json => serde_json::from_str(text).ok(),
        };
        match written {
            Some(Value::Object(mut file)) => match file.remove("rules") {
                Some(Value::Array(rules)) => rules,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

fn mistakes(error: RulesError) -> Mistakes {
    let mistakes = error.mistakes().iter().map(|mistake| Mistake {
        place: mistake.field().to_owned(),
        problem: mistake.problem().to_owned(),
    });
    Mistakes {
        found: mistakes.collect(),
        may_hide_others: error.is_malformed(),
    }
}

/// A syntax error.
fn syntax_error(error: impl ToString) -> Mistakes {
    let mistake = Mistake {
        place: String::new(),
        problem: error.to_string().trim_end().to_owned(),
    };
    Mistakes {
        found: vec![mistake],
        may_hide_others: true,
    }
}

/// In headers, `no` and `on` are texts, as in YAML 1.2.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

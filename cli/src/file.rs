//! A file of rules, in one of the formats that are known: [`RulesFile`].

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, stdin};
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use tower_throttle::rules::{Rules, RulesError};

use crate::failure::Failure;

/// What stands for the standard input.
const STDIN: &str = "-";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Toml,
    Yaml,
    Json,
}

/// The text of a file.
pub(crate) struct RulesFile {
    pub(crate) name: String,
    format: Format,
    text: String,
}

/// What is wrong, and where.
#[derive(Debug, Serialize)]
pub(crate) struct Mistake {
    /// Such as `rules[2].quota`; empty where a text breaks the rules of its format.
    pub(crate) place: String,
    pub(crate) problem: String,
}

/// All that are in a file, or the first.
pub(crate) struct Mistakes {
    pub(crate) found: Vec<Mistake>,
    /// Whether what stands besides was not looked at.
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
    /// Reads the text, from the standard input if that is asked for.
    pub(crate) fn open(path: &Path, format: Option<Format>) -> Result<Self, Failure> {
        let is_stdin = path == Path::new(STDIN);
        let name = if is_stdin {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        let Some(format) = format.or_else(|| Format::of(path)) else {
            let problem = format!("{name}: its name does not tell the format");
            return Err(Failure::usage(problem).hint("`--format` says which it is"));
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

    /// The rules, or what is wrong with them.
    pub(crate) fn rules(&self) -> Result<Rules, Mistakes> {
        let text = &self.text;
        match self.format {
            Format::Toml => match toml::Deserializer::parse(text) {
                Ok(document) => Rules::read(document).map_err(mistakes),
                Err(error) => Err(broken(error)),
            },
            Format::Yaml => {
                let mut rules = None;
                let read = serde_saphyr::with_deserializer_from_str(text, |document| {
                    rules = Some(Rules::read(document));
                    Ok(())
                });
                match (rules, read) {
                    (Some(Err(error)), _) => Err(mistakes(error)),
                    (Some(Ok(rules)), Ok(())) => Ok(rules),
                    (_, Err(error)) => Err(broken(error)),
                    (None, Ok(())) => Err(broken("there is nothing in it")),
                }
            }
            Format::Json => {
                let mut document = serde_json::Deserializer::from_str(text);
                let rules = Rules::read(&mut document).map_err(mistakes)?;
                document.end().map_err(broken)?;
                Ok(rules)
            }
        }
    }

    /// The fields of each rule as they were written, of a file that has no mistakes.
    pub(crate) fn fields(&self) -> Vec<Value> {
        let text = &self.text;
        let written = match self.format {
            Format::Toml => toml::from_str(text).ok(),
            Format::Yaml => serde_saphyr::from_str(text).ok(),
            Format::Json => serde_json::from_str(text).ok(),
        };
        match written {
            Some(Value::Array(rules)) => rules,
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
        place: mistake.place.clone(),
        problem: mistake.problem.clone(),
    });
    Mistakes {
        found: mistakes.collect(),
        may_hide_others: error.is_malformed(),
    }
}

/// The text breaks the rules of its format.
fn broken(error: impl ToString) -> Mistakes {
    let mistake = Mistake {
        place: String::new(),
        problem: error.to_string().trim_end().to_owned(),
    };
    Mistakes {
        found: vec![mistake],
        may_hide_others: true,
    }
}

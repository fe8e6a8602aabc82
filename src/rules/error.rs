//! Mistakes in rules, with their places: [`RulesError`].

use std::error::Error as StdError;
use std::fmt;

use super::report::joined;
use crate::error::BuildError;

/// The mistakes in rules, or in a text that is not valid rules.
///
/// `Display` writes a line for each mistake, with its place and the problem.
///
/// ```
/// use tower_throttle::Quota;
/// use tower_throttle::rules::{Rule, Rules};
///
/// let search = Rule::named("search").path("/search").quota(Quota::per_minute(0));
/// let error = Rules::new([search, Rule::exempt().path("/health/:id")]).unwrap_err();
///
/// let places: Vec<_> = error.mistakes().iter().map(|mistake| mistake.field()).collect();
/// assert_eq!(places, ["rules[0].quota", "rules[1].path", "rules[1]"]);
/// assert!(error.to_string().starts_with("rules[0].quota: `0/m`: the limit is zero\n"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesError {
    pub(super) is_malformed: bool,
    pub(super) mistakes: Vec<BuildError>,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    /// The place of the rule that is being checked.
    pub(super) rule: usize,
    pub(super) found: Vec<BuildError>,
}

impl Mistakes {
    /// Adds a mistake in a field of the rule, or in the whole rule if the field is empty.
    pub(super) fn add(&mut self, field: impl AsRef<str>, problem: impl Into<String>) {
        let (rule, field) = (self.rule, field.as_ref());
        let dot = if field.is_empty() { "" } else { "." };
        let place = format!("rules[{rule}]{dot}{field}");
        self.found.push(BuildError::new(place, problem.into()));
    }

    /// Returns the valid values of a list and adds the mistakes of the others.
    pub(super) fn list<'a, T, U>(
        &mut self,
        field: &str,
        list: &'a [T],
        mut check: impl FnMut(&'a T) -> Result<U, String>,
    ) -> Vec<U> {
        let mut valid = Vec::new();
        for (place, value) in list.iter().enumerate() {
            match check(value) {
                Ok(value) => valid.push(value),
                Err(problem) if list.len() == 1 => self.add(field, problem),
                Err(problem) => self.add(format!("{field}[{place}]"), problem),
            }
        }
        valid
    }
}

impl RulesError {
    /// True if the text could not be read: it violates its format, or has an unknown field or a value of another type.
    /// Then only this mistake is reported, and the values were not checked. Otherwise, all mistakes are reported.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// All mistakes, in the order of the rules; at least one.
    ///
    /// The [field](BuildError::field) of each is its place, such as `rules[2].quota[1]`: counted from 0, and without the
    /// brackets at the end if the field has a single value. The [problem](BuildError::problem) has the value, and the way
    /// to fix it. If a text could not be read, it is the message of the format, which may have several lines.
    pub fn mistakes(&self) -> &[BuildError] {
        &self.mistakes
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.mistakes, "\n"))
    }
}

impl StdError for RulesError {}

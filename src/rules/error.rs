//! Mistakes in rules, with their places: [`RulesError`].

use std::error::Error as StdError;
use std::fmt;

use super::report::joined;
use super::rule::List;

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
/// let places: Vec<_> = error.mistakes().iter().map(|mistake| &mistake.place).collect();
/// assert_eq!(places, ["rules[0].quota", "rules[1].path", "rules[1]"]);
/// assert!(error.to_string().starts_with("rules[0].quota: quota `0/m`: the limit is zero\n"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesError {
    is_malformed: bool,
    mistakes: Vec<Mistake>,
}

/// One mistake and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistake {
    /// The place, such as `rules[2].quota[1]`: counted from 0, and without the brackets at the end if the field has a
    /// single value. Empty if a text violates its format.
    pub place: String,
    /// The problem, with the value, and the way to fix it. If a text could not be read, this is the format's message,
    /// which may have several lines, with the line and column if the format reports them.
    pub problem: String,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    /// The place of the rule that is being checked.
    pub(super) rule: usize,
    found: Vec<Mistake>,
}

impl Mistakes {
    /// Adds a mistake in a field of the rule, or in the whole rule if the field is empty.
    pub(super) fn add(&mut self, field: impl AsRef<str>, problem: impl Into<String>) {
        let (rule, field) = (self.rule, field.as_ref());
        let dot = if field.is_empty() { "" } else { "." };
        self.found.push(Mistake {
            place: format!("rules[{rule}]{dot}{field}"),
            problem: problem.into(),
        });
    }

    /// Returns the valid values of a list and adds the mistakes of the others.
    pub(super) fn list<'a, T, U>(
        &mut self,
        field: &str,
        list: &'a List<T>,
        mut check: impl FnMut(usize, &'a T) -> Result<U, String>,
    ) -> Vec<U> {
        if list.is_empty() {
            self.add(field, "it is empty: leave it out, or add a value");
        }
        let mut valid = Vec::new();
        for (place, value) in list.iter().enumerate() {
            match check(place, value) {
                Ok(value) => valid.push(value),
                Err(problem) => self.add(place_in(field, list, place), problem),
            }
        }
        valid
    }

    /// Fails if there are mistakes.
    pub(super) fn finish(self) -> Result<(), RulesError> {
        match self.found.is_empty() {
            true => Ok(()),
            false => Err(RulesError {
                is_malformed: false,
                mistakes: self.found,
            }),
        }
    }
}

/// The name of the field, with the place in the list if that has several values.
pub(super) fn place_in<T>(field: &str, list: &List<T>, place: usize) -> String {
    match list.iter().nth(1).is_some() {
        true => format!("{field}[{place}]"),
        false => field.to_owned(),
    }
}

impl RulesError {
    pub(super) fn of(is_malformed: bool, place: String, problem: &str) -> Self {
        let problem = problem.to_owned();
        Self {
            is_malformed,
            mistakes: vec![Mistake { place, problem }],
        }
    }

    /// True if the text could not be read: it violates its format, or has an unknown field or a value of another type.
    /// Then only this mistake is reported, and the values were not checked. Otherwise, all mistakes are reported.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// All mistakes, in the order of the rules; at least one.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.problem),
            place => write!(f, "{place}: {}", self.problem),
        }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.mistakes, "\n"))
    }
}

impl StdError for RulesError {}

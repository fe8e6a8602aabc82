//! What is wrong with rules, and where: [`RulesError`].

use std::error::Error as StdError;
use std::fmt;

/// Rules that cannot hold, or a text that is no rules: with the place of each mistake.
///
/// It is shown as one line for each mistake, of its place and what is wrong.
///
/// ```
/// use tower_throttle::Quota;
/// use tower_throttle::rules::{Rule, Rules};
///
/// let search = Rule::named("search").path("/search").quota(Quota::per_minute(0));
/// let error = Rules::new([search, Rule::exempt().path("/health/:id")]).unwrap_err();
///
/// let places: Vec<_> = error.mistakes().map(|mistake| mistake.place()).collect();
/// assert_eq!(places, ["rules[0].quota", "rules[1].path", "rules[1]"]);
/// assert!(error.to_string().starts_with("rules[0].quota: quota `0/m`: the limit is zero\n"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesError {
    kind: Kind,
    mistakes: Vec<Mistake>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Malformed,
    Invalid,
}

/// One mistake, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Of which rule, if it is of one.
    rule: Option<usize>,
    place: String,
    problem: String,
}

impl RulesError {
    /// The text is of no format that is read, or holds what is no field or of another type.
    #[cfg(feature = "serde")]
    pub(super) fn malformed(mistake: Mistake) -> Self {
        Self {
            kind: Kind::Malformed,
            mistakes: vec![mistake],
        }
    }

    pub(super) fn invalid(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| mistake.rule);
        Self {
            kind: Kind::Invalid,
            mistakes,
        }
    }

    /// Whether the text could not be read: it breaks the rules of its format, or holds what is no field, or is of
    /// another type. What the values mean was not looked at then, and there is one mistake.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        self.kind == Kind::Malformed
    }

    /// Whether the rules could be read, but cannot hold: all mistakes are named.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.kind == Kind::Invalid
    }

    /// All mistakes, in the order of the rules; at least one.
    pub fn mistakes(&self) -> impl ExactSizeIterator<Item = &Mistake> {
        self.mistakes.iter()
    }
}

impl Mistake {
    pub(super) fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            rule: None,
            place: place.into(),
            problem: problem.into(),
        }
    }

    /// In this rule, which is counted from 0.
    pub(super) fn of_rule(rule: usize, within: &str, problem: impl Into<String>) -> Self {
        Self {
            rule: Some(rule),
            ..Self::new(format!("rules[{rule}]{within}"), problem)
        }
    }

    /// Where it is, such as `rules[2].quota[1]`: counted from 0, and without the brackets at the end where one
    /// value stands instead of a list. Empty where a text breaks the rules of its format.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What is wrong, with the value, and what to do. Where a text could not be read, it is what the format says, with
    /// the line and column if it tells them; it may be of several lines, then.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
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
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl StdError for RulesError {}

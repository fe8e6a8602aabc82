//! The errors of configurations and stores: [`BuildError`] and [`StoreError`].

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A configuration that cannot hold, with the name of the field and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    field: Cow<'static, str>,
    problem: Cow<'static, str>,
}

impl BuildError {
    pub(crate) fn new(
        field: impl Into<Cow<'static, str>>,
        problem: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The rules of a limiter set names, quotas and bounds.
    pub(crate) fn set_by_rules(field: &'static str) -> Self {
        Self::new(field, "the `rules` of the limiter set it: change it there")
    }

    /// The name of the field that is wrong, such as `max_wait`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The problem of the field, with its value.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}

impl StdError for BuildError {}

/// A store did not answer, or with an error.
///
/// Clones are cheap: all requests that shared a call share its error.
#[derive(Debug, Clone)]
#[must_use]
pub struct StoreError {
    message: &'static str,
    unknown: bool,
    kind: Kind,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The store answers no call.
    Outage,
    /// The store answers other calls.
    Call,
    /// Other processes changed the value at the same time: the call can be repeated.
    Conflict,
    /// This crate did not write the value of the key.
    UnrecognizedValue,
    /// The URL does not name a store.
    InvalidUrl,
}

impl StoreError {
    /// An error with this message, of a call that recorded nothing. Unless changed by [`no_outage`](Self::no_outage), the
    /// store is out, and the limiter's [outage policy](crate::Outage) applies.
    pub fn new(message: &'static str) -> Self {
        Self {
            message,
            unknown: false,
            kind: Kind::Outage,
            source: None,
        }
    }

    /// Adds the cause.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Marks the call as one that the store may have executed.
    pub fn outcome_unknown(mut self) -> Self {
        self.unknown = true;
        self
    }

    /// Limits the error to this call: the store answers other calls, and would refuse this one again.
    pub fn no_outage(mut self) -> Self {
        self.kind = Kind::Call;
        self
    }

    /// Marks the value of the key as not written by this crate: [no outage](Self::no_outage).
    pub fn unrecognized_value(mut self) -> Self {
        self.kind = Kind::UnrecognizedValue;
        self
    }

    /// Marks a call that recorded nothing and can be repeated, as other processes changed the value at the same time:
    /// [no outage](Self::no_outage).
    pub fn conflict(mut self) -> Self {
        self.kind = Kind::Conflict;
        self
    }

    /// Marks the URL as invalid: [no outage](Self::no_outage).
    pub(crate) fn invalid_url(mut self) -> Self {
        self.kind = Kind::InvalidUrl;
        self
    }

    /// Whether the store is out, as far as this call shows.
    pub fn is_outage(&self) -> bool {
        self.kind == Kind::Outage
    }

    /// Whether the value of the key was not written by this crate, or by a later version of it. It is never overwritten:
    /// delete it, for example by `throttle reset`. Other keys work.
    pub fn is_unrecognized_value(&self) -> bool {
        self.kind == Kind::UnrecognizedValue
    }

    /// Whether the call can be repeated, as other processes changed the value at the same time. The limiter repeats it.
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }

    /// Whether the URL is invalid.
    pub fn is_invalid_url(&self) -> bool {
        self.kind == Kind::InvalidUrl
    }

    /// Whether the store may have executed the call, as its answer was lost. If `false`, it recorded nothing.
    pub fn is_outcome_unknown(&self) -> bool {
        self.unknown
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

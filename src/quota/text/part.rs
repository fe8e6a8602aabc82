//! A part of the text being parsed that knows where it stands: [`Part`].

use std::fmt;

use super::error::{ParseQuotaError, quote};

/// A part of the text being parsed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

impl<'a> Part<'a> {
    /// All of the text but the white space around it.
    pub(super) fn new(whole: &'a str) -> Self {
        let end = whole.trim_ascii_end().len();
        let start = end - whole.trim_ascii().len();
        Self { whole, start, end }
    }

    pub(super) fn text(&self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// From the beginning of this part to the end of another.
    pub(super) fn to(self, last: Self) -> Self {
        Self {
            end: last.end,
            ..self
        }
    }

    /// Cuts off and returns what stands before the first character of this kind.
    fn take_until(&mut self, is_end: impl Fn(char) -> bool) -> Self {
        let len = self.text().find(is_end).unwrap_or(self.end - self.start);
        let head = Self {
            end: self.start + len,
            ..*self
        };
        self.start = head.end;
        head
    }

    /// Cuts off and returns the next word; it is empty where the text ends.
    pub(super) fn take_word(&mut self) -> Self {
        self.take_until(|c| !c.is_ascii_whitespace());
        self.take_until(|c| c.is_ascii_whitespace())
    }

    /// Cuts off and returns what looks like a number.
    pub(super) fn take_number(&mut self) -> Self {
        self.take_until(|c| !is_numeric(c))
    }

    /// Cuts off and returns what stands before anything that looks like a number.
    pub(super) fn take_name(&mut self) -> Self {
        self.take_until(is_numeric)
    }

    /// The parts before and after the first such character, if neither is empty.
    pub(super) fn split(mut self, separator: char) -> Option<(Self, Self)> {
        let head = self.take_until(|c| c == separator);
        self.start += separator.len_utf8();
        (!head.is_empty() && self.start < self.end).then_some((head, self))
    }

    /// The number, or the largest one if it is larger; digits that may have single `_` between them.
    pub(super) fn number(self, what: &str) -> Result<u64, ParseQuotaError> {
        let is_digits =
            |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
        if !self.text().split('_').all(is_digits) {
            return Err(self.wrong(
                what,
                "is not a whole number, expected digits, such as 5_000",
            ));
        }
        Ok(self.text().replace('_', "").parse().unwrap_or(u64::MAX))
    }

    /// The number, if it is no larger than numbers of requests can be.
    pub(super) fn count(self, what: &str) -> Result<u32, ParseQuotaError> {
        let too_large = "is too large, expected at most 4_294_967_295";
        u32::try_from(self.number(what)?).map_err(|_| self.wrong(what, too_large))
    }

    /// The error that something else was expected here.
    pub(super) fn unexpected(self, expected: &str) -> ParseQuotaError {
        match self.is_empty() {
            true => self.error(&format!(
                "unexpected end of text at byte {}, expected {expected}",
                self.start
            )),
            false => self.error(&format!("unexpected {self}, expected {expected}")),
        }
    }

    /// The error that no such name is known.
    pub(super) fn unknown(self, what: &str, expected: &str) -> ParseQuotaError {
        self.error(&format!("unknown {what} {self}, expected {expected}"))
    }

    /// The error that this part has a problem.
    pub(super) fn wrong(self, what: &str, problem: &str) -> ParseQuotaError {
        self.error(&format!("{what} {self} {problem}"))
    }

    /// The error that the quota cannot hold because of this part.
    pub(super) fn refused(self, problem: &str) -> ParseQuotaError {
        match self.text() == self.whole {
            true => self.error(problem),
            false => self.error(&format!("{problem} ({self})")),
        }
    }

    fn error(self, problem: &str) -> ParseQuotaError {
        ParseQuotaError::new(self.whole, self.start..self.end, problem)
    }
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", quote(self.text()), self.start)
    }
}

/// True for the characters of numbers, and of texts that people take for numbers, such as `1.5`, `5,000` and `-1`.
fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '_' | '.' | ',' | '+' | '-')
}

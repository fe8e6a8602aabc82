//! A part of the text being parsed that knows where it stands: [`Part`].

use super::error::{Kind, ParseQuotaError};

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

    /// What stands before and after the first such character, if there is one.
    pub(super) fn split(mut self, separator: char) -> Option<(Self, Self)> {
        let head = self.take_until(|c| c == separator);
        (!self.is_empty()).then(|| {
            self.start += separator.len_utf8();
            (head, self)
        })
    }

    /// The number, or the largest one if it is larger; digits that may have single `_` between them.
    pub(super) fn number(self, what: &'static str) -> Result<u64, ParseQuotaError> {
        let is_digits =
            |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
        if !self.text().split('_').all(is_digits) {
            return Err(self.wrong(what, "is not a whole number", "digits, such as 5_000"));
        }
        let digits = self.text().bytes().filter(u8::is_ascii_digit);
        Ok(digits.fold(0, |number: u64, digit| {
            number
                .saturating_mul(10)
                .saturating_add((digit - b'0').into())
        }))
    }

    /// The number, if it is no larger than numbers of requests can be.
    pub(super) fn count(self, what: &'static str) -> Result<u32, ParseQuotaError> {
        u32::try_from(self.number(what)?)
            .map_err(|_| self.wrong(what, "is too large", "at most 4_294_967_295"))
    }

    pub(super) fn unexpected(self, expected: &'static str) -> ParseQuotaError {
        self.error(Kind::Unexpected { expected })
    }

    pub(super) fn unknown(self, what: &'static str, expected: &'static str) -> ParseQuotaError {
        self.error(Kind::Unknown { what, expected })
    }

    pub(super) fn wrong(
        self,
        what: &'static str,
        problem: &'static str,
        expected: &'static str,
    ) -> ParseQuotaError {
        self.error(Kind::Wrong {
            what,
            problem,
            expected,
        })
    }

    pub(super) fn refused(self, problem: String) -> ParseQuotaError {
        self.error(Kind::Refused(problem))
    }

    fn error(self, kind: Kind) -> ParseQuotaError {
        ParseQuotaError::new(self.whole, self.start..self.end, kind)
    }
}

/// Whether numbers are made of it, or what people take for numbers, such as `1.5`, `5,000` and `-1`.
fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '_' | '.' | ',' | '+' | '-')
}

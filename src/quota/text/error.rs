//! What is wrong with a text, and where: [`ParseQuotaError`].

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;

/// As much of a text as a message quotes, in characters.
const LONGEST_QUOTE: usize = 40;

/// A text that is no [`Quota`](crate::Quota), with the part at fault.
///
/// ```
/// use tower_throttle::Quota;
///
/// let text = "100/m gcra burst=0";
/// let error = text.parse::<Quota>().unwrap_err();
/// assert_eq!(&text[error.span()], "0");
/// assert_eq!(error.to_string(), "quota \"100/m gcra burst=0\": the burst is zero (\"0\" at byte 17)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseQuotaError {
    text: Quote,
    found: Quote,
    span: Range<usize>,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing of the sort may stand there.
    Unexpected { expected: &'static str },
    /// A name that means nothing there.
    Unknown {
        what: &'static str,
        expected: &'static str,
    },
    /// A part in its place that makes no sense.
    Wrong {
        what: &'static str,
        problem: &'static str,
        expected: &'static str,
    },
    /// The grammar is followed, and the quota cannot hold.
    Refused(String),
}

impl ParseQuotaError {
    pub(super) fn new(text: &str, span: Range<usize>, kind: Kind) -> Self {
        Self {
            text: Quote::new(text),
            found: Quote::new(&text[span.clone()]),
            span,
            kind,
        }
    }

    /// The part of the text that is at fault, in bytes.
    ///
    /// It begins and ends between characters, so `&text[error.span()]` is that part. It is empty only
    /// if the text ended too early, and then stands where something more was expected. A quota
    /// that cannot hold although each of its parts could is at fault as a whole.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text, found, span, ..
        } = self;
        let at = span.start;
        write!(f, "quota {text}: ")?;
        match &self.kind {
            Kind::Unexpected { expected } if span.is_empty() => {
                write!(
                    f,
                    "unexpected end of text at byte {at}, expected {expected}"
                )
            }
            Kind::Unexpected { expected } => {
                write!(f, "unexpected {found} at byte {at}, expected {expected}")
            }
            Kind::Unknown { what, expected } => {
                write!(
                    f,
                    "unknown {what} {found} at byte {at}, expected {expected}"
                )
            }
            Kind::Wrong {
                what,
                problem,
                expected,
            } => {
                write!(
                    f,
                    "{what} {found} at byte {at} {problem}, expected {expected}"
                )
            }
            Kind::Refused(problem) if found == text => f.write_str(problem),
            Kind::Refused(problem) => write!(f, "{problem} ({found} at byte {at})"),
        }
    }
}

impl StdError for ParseQuotaError {}

/// The beginning of a text, shown between quotation marks and without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Quote {
    start: Box<str>,
    is_all: bool,
}

impl Quote {
    fn new(text: &str) -> Self {
        let cut = text.char_indices().nth(LONGEST_QUOTE);
        let end = cut.map_or(text.len(), |(at, _)| at);
        Self {
            start: text[..end].into(),
            is_all: cut.is_none(),
        }
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ellipsis = if self.is_all { "" } else { "…" };
        write!(f, "{:?}{ellipsis}", self.start)
    }
}

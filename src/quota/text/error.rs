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
    message: String,
    span: Range<usize>,
}

impl ParseQuotaError {
    /// The problem of a text, without the text itself.
    pub(super) fn new(text: &str, span: Range<usize>, problem: &str) -> Self {
        let message = format!("quota {}: {problem}", quote(text));
        Self { message, span }
    }

    /// The part of the text that is at fault, in bytes.
    ///
    /// It begins and ends between characters, so `&text[error.span()]` is that part. It is empty only
    /// if the text ended too early, and then stands where something more was expected. A quota
    /// that cannot hold although each of its parts could is at fault as a whole.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ParseQuotaError {}

/// The beginning of a text, between quotation marks and without control characters.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

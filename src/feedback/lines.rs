//! The headers of a response, which may be malformed: [`Lines`].

use std::cell::{OnceCell, RefCell};
use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// So many lines of a header, and values of a line, are read. An upstream cannot make a client busy with more.
pub(super) const MOST_VALUES: usize = 64;

/// The header lines of a response. It remembers one header that is malformed.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    pub(super) headers: &'a HeaderMap,
    malformed: RefCell<Option<HeaderName>>,
    /// The time at the origin, once it is needed.
    pub(super) now: OnceCell<Duration>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(headers: &'a HeaderMap) -> Self {
        Self {
            headers,
            malformed: RefCell::default(),
            now: OnceCell::new(),
        }
    }

    /// The values of all lines of a header. A line is one value, or several with commas between them; it is
    /// left out if any of them is malformed.
    pub(super) fn values<T>(&self, name: &HeaderName, value: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let value = |text: &str| value(text.trim());
        // The whole comes first, as a date has a comma of its own.
        let values = |line: &str| match value(line) {
            Some(value) => Some(vec![value]),
            None => line.split(',').take(MOST_VALUES).map(value).collect(),
        };
        let lines = self.headers.get_all(name).iter().take(MOST_VALUES);
        let lines = lines.filter_map(|line| {
            let values = line.to_str().ok().and_then(values);
            if values.is_none() {
                self.is_malformed(name);
            }
            values
        });
        lines.flatten().collect()
    }

    pub(super) fn is_malformed(&self, name: &HeaderName) {
        self.malformed.replace(Some(name.clone()));
    }

    /// A header that was read and is malformed, if there is one.
    pub(super) fn malformed(self) -> Option<HeaderName> {
        self.malformed.into_inner()
    }
}

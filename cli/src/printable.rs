//! Text that strangers may have written, as a terminal may have it: [`printable`].

use std::borrow::Cow;
use std::iter;

/// The text with whatever is not seen as it is written as an escape, such as `\u{1b}` or `\n`. A terminal takes
/// control characters for orders, and some others, as those that turn the direction, lead the eye astray.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_printable)
}

/// The same of several lines, which stay apart.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |char| char == '\n' || is_printable(char))
}

fn escape(text: &str, is_harmless: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_harmless) {
        return Cow::Borrowed(text);
    }
    let shown = |char: char| {
        let escaped = (!is_harmless(char)).then(|| char.escape_debug());
        let plain = escaped.is_none().then_some(char);
        plain.into_iter().chain(escaped.into_iter().flatten())
    };
    Cow::Owned(text.chars().flat_map(shown).collect())
}

/// As the standard library sees it: no control or format character, no separator but the space, and none that
/// is not assigned.
fn is_printable(char: char) -> bool {
    if matches!(char, '"' | '\'' | '\\') {
        return true;
    }
    // Behind another, a mark that combines with it is no reason to escape it.
    let text: String = iter::once('a').chain([char]).collect();
    text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_does_not_show_is_escaped() {
        for (text, shown) in [
            ("\u{1b}]0;x\u{7}", r"\u{1b}]0;x\u{7}"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("a\u{202e}b\u{2066}", r"a\u{202e}b\u{2066}"),
            ("a\u{200b}\u{ad}\u{feff}", r"a\u{200b}\u{ad}\u{feff}"),
            ("a\nb\tc\r", r"a\nb\tc\r"),
            ("\u{2028}\u{e0041}\u{7f}\0", r"\u{2028}\u{e0041}\u{7f}\0"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(&printable(text)), shown);
        }
        assert_eq!(printable_lines("a\u{1b}\nb"), "a\\u{1b}\nb");
    }

    #[test]
    fn what_people_read_stays_as_it_is() {
        for text in [
            "",
            "GET /users/{id}?q=\"a\\b'c\"",
            "e\u{301}\u{e9} Ünïcode 漢字 ελληνικά עברית हिन्दी 🦀",
            "─│≤→",
        ] {
            assert!(
                matches!(printable(text), Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
    }
}

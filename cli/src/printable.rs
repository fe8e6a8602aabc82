//! Escapes untrusted text for a terminal: [`printable`].

use std::borrow::Cow;
use std::iter;

/// Escapes control and invisible characters, such as `\u{1b}` or `\n`. A terminal interprets control characters, and
/// characters such as a change of direction make the text look different from what it is.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_printable)
}

/// Like [`printable`], but keeps line breaks.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |char| char == '\n' || is_printable(char))
}

fn escape(text: &str, is_allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_allowed) {
        return Cow::Borrowed(text);
    }
    let shown = |char: char| {
        let escaped = (!is_allowed(char)).then(|| char.escape_debug());
        let plain = escaped.is_none().then_some(char);
        plain.into_iter().chain(escaped.into_iter().flatten())
    };
    Cow::Owned(text.chars().flat_map(shown).collect())
}

/// True for characters that `escape_debug` does not escape: control and format characters, separators other than the
/// space, and unassigned characters are not printable.
fn is_printable(char: char) -> bool {
    if matches!(char, '"' | '\'' | '\\') {
        return true;
    }
    // `escape_debug` escapes a combining mark only at the start of a text.
    let text: String = iter::once('a').chain([char]).collect();
    text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_escaped() {
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
    fn visible_text_is_unchanged() {
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

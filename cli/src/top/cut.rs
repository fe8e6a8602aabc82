//! Shortens text to the width of a column: [`cut`].

use ratatui::style::Style;
use ratatui::text::Span;

/// Shortens a text to `width` terminal columns: its beginning, `…`, and up to `end` columns of its end. Never splits a
/// grapheme.
pub(crate) fn cut(text: String, width: u16, end: u16) -> String {
    let (width, end) = (usize::from(width), usize::from(end));
    let span = Span::raw(&text);
    let parts = span.styled_graphemes(Style::new()).map(|it| it.symbol);
    let parts: Vec<_> = parts.map(|it| (it, Span::raw(it).width())).collect();
    if parts.iter().map(|(_, width)| width).sum::<usize>() <= width {
        return text;
    }
    let room = width.saturating_sub(1);
    let (last, taken) = fitting(parts.iter().rev(), end.min(room));
    let (first, _) = fitting(parts.iter(), room - taken);
    let last = &parts[parts.len() - last..];
    let symbols = |parts: &[(&str, usize)]| parts.iter().map(|(it, _)| *it).collect::<String>();
    format!("{}\u{2026}{}", symbols(&parts[..first]), symbols(last))
}

/// The number of parts that fit into the room, and their total width.
fn fitting<'a>(parts: impl Iterator<Item = &'a (&'a str, usize)>, room: usize) -> (usize, usize) {
    let sums = parts.scan(0, |sum, (_, width)| {
        *sum += width;
        Some(*sum)
    });
    let fitting = sums.take_while(|sum| *sum <= room);
    fitting.fold((0, 0), |(count, _), sum| (count + 1, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_text_keeps_both_ends_and_its_characters_whole() {
        for text in ["", "a", "abcdef", "漢字漢", "e\u{301}abcde"] {
            assert_eq!(cut(text.to_owned(), 6, 2), text);
        }
        for (text, width, end, shown) in [
            ("abcdefgh", 6, 2, "abc…gh"),
            ("abcdefgh", 6, 0, "abcde…"),
            ("abcdefgh", 6, 9, "…defgh"),
            ("abcdefgh", 2, 0, "a…"),
            ("abcdefgh", 1, 0, "…"),
            ("漢字漢字", 7, 3, "漢字…字"),
            ("漢字漢字", 6, 2, "漢…字"),
            ("漢字漢字", 6, 1, "漢字…"),
            ("ae\u{301}ae\u{301}", 3, 1, "a…e\u{301}"),
            ("🏳\u{fe0f}\u{200d}🌈abc", 4, 1, "🏳\u{fe0f}\u{200d}🌈…c"),
        ] {
            let cut = cut(text.to_owned(), width, end);
            assert_eq!(cut, shown);
            assert!(Span::raw(cut).width() <= width.into());
        }
    }
}

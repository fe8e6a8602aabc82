//! Draws the table: [`draw`].

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::View;
use super::board::Page;
use super::cut::cut;
use crate::status::KeyStatus;
use crate::time::{brief, count};

/// The content of the screen.
pub(crate) struct Screen<'a> {
    pub(crate) page: &'a Page,
    pub(crate) view: &'a View,
    /// Number of rows above the first visible one.
    pub(crate) scroll: usize,
    /// True while the user edits the filter.
    pub(crate) typing: bool,
    /// Why the last refresh failed.
    pub(crate) failure: Option<&'a str>,
}

/// The name and the minimum width.
type Column = (&'static str, u16);

/// The columns with their minimum widths, from the left. A narrow terminal leaves out columns on the right. The key
/// column has room for both ends of a key, because keys often differ only at the end.
const COLUMNS: [Column; 8] = [
    ("KEY", 24),
    ("USED", 13),
    ("LEFT", 7),
    ("NEXT", 9),
    ("WAITING", 18),
    ("PAUSED", 10),
    ("RATE", 9),
    ("POLICY", 12),
];

/// Space between columns.
const SPACING: u16 = 1;

/// Number of rows that fit into a terminal of this height.
pub(crate) fn rows(height: u16) -> usize {
    usize::from(height.saturating_sub(3))
}

pub(crate) fn draw(frame: &mut Frame<'_>, screen: &Screen<'_>) {
    let error = error_line(screen);
    let lines = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(error.is_some().into()),
        Constraint::Length(1),
    ];
    let [top, middle, above, bottom] = Layout::vertical(lines).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(head(screen)).style(bold), top);
    frame.render_widget(table(screen, middle), middle);
    if let Some(error) = error {
        let line = Line::styled(error, Style::new().fg(Color::Red));
        frame.render_widget(Paragraph::new(line), above);
    }
    let foot = match screen.typing {
        true => format!("filter: {}_", screen.view.filter),
        false => "s sort  / filter  arrows scroll  q quit".to_owned(),
    };
    frame.render_widget(Paragraph::new(foot), bottom);
}

/// The error line: the error, and how many rows are outdated because of it.
fn error_line(screen: &Screen<'_>) -> Option<String> {
    let Screen { page, .. } = screen;
    let why = screen.failure.or(page.error.as_deref());
    match (why, page.stale) {
        (None, _) => page.unreadable.clone(),
        (Some(why), 0) => Some(why.to_owned()),
        (Some(why), 1) => Some(format!("1 row is outdated: {why}")),
        (Some(why), stale) => Some(format!("{stale} rows are outdated: {why}")),
    }
}

fn head(screen: &Screen<'_>) -> String {
    let Screen { page, view, .. } = screen;
    let keys = u32::try_from(page.keys).unwrap_or(u32::MAX);
    let more = if page.complete { "" } else { " so far" };
    let about = if page.about { "about " } else { "" };
    let (keys, sort) = (count(keys), view.sort.name());
    let mut head = format!("{about}{keys} keys{more}, by {sort}");
    if !view.filter.is_empty() && !screen.typing {
        head += &format!(", with {:?}", view.filter);
    }
    head
}

fn table<'a>(screen: &Screen<'a>, area: Rect) -> Table<'a> {
    let columns = columns(screen.page, area.width);
    let widths = widths(&columns, area);
    let names = columns.iter().map(|(name, _)| *name);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let rows = screen.page.rows.iter().skip(screen.scroll);
    let rows = rows.map(|status| row(status, &columns, &widths));
    Table::new(rows, Constraint::from_lengths(widths.iter().copied()))
        .column_spacing(SPACING)
        .header(Row::new(names).style(dim))
}

/// The widths of the columns that fit. The policy gets a third of the spare width, the key the rest.
fn widths(columns: &[Column], area: Rect) -> Vec<u16> {
    let least: u16 = columns.iter().map(|(_, width)| width + SPACING).sum();
    let spare = (area.width + SPACING).saturating_sub(least);
    let widths = columns.iter().map(|&(name, width)| match name {
        "KEY" => Constraint::Min(width),
        "POLICY" => Constraint::Length(width + spare / 3),
        _ => Constraint::Length(width),
    });
    let columns = Layout::horizontal(widths).spacing(SPACING).split(area);
    columns.iter().map(|column| column.width).collect()
}

/// The columns that fit; the key always does. Waiting requests have a column if some have another priority than normal.
fn columns(page: &Page, width: u16) -> Vec<Column> {
    let has_levels = page
        .rows
        .iter()
        .any(|status| status.levels.are_prioritized());
    let mut taken = 0;
    let fits = |(name, column): &Column| {
        taken += column + SPACING;
        taken <= width + SPACING || *name == "KEY"
    };
    let columns = COLUMNS.into_iter();
    let columns = columns.filter(|(name, _)| *name != "WAITING" || has_levels);
    columns.take_while(fits).collect()
}

fn row(status: &KeyStatus, columns: &[Column], widths: &[u16]) -> Row<'static> {
    let bound = if status.exact { "" } else { "\u{2264}" };
    let (used, share) = match status.busiest() {
        Some((used, share)) => (
            format!("{bound}{}/{}", count(used.used), count(used.capacity)),
            share,
        ),
        None => Default::default(),
    };
    let next = match status.next {
        None => "place".to_owned(),
        Some(Duration::ZERO) => "now".to_owned(),
        Some(next) => brief(next),
    };
    let paused = match (status.paused, status.quarantined) {
        (paused, Some(left)) if paused < Some(left) => format!("lost {}", brief(left)),
        (Some(left), _) => brief(left),
        (None, _) => String::new(),
    };
    let rate = status.rate().map(|rate| format!("{bound}{rate:.1}/s"));
    let cells = [
        status.shown_key(),
        used,
        status.remaining.least().to_string(),
        next,
        status.levels.to_string(),
        paused,
        rate.unwrap_or_default(),
        status.shown_policy(),
    ];
    let cells = cells.into_iter().zip(COLUMNS);
    let cells = cells.filter(|(_, column)| columns.contains(column));
    let cells = cells.zip(widths).map(|((text, (name, _)), &width)| {
        // Numbers are cut at the end, because their last digits alone could be mistaken for the number.
        let end = match name {
            "KEY" | "POLICY" => width.saturating_sub(1) / 2,
            _ => 0,
        };
        Cell::from(cut(text, width, end))
    });
    let style = if status.paused.is_some() || status.quarantined.is_some() {
        Style::new().fg(Color::Magenta)
    } else if share >= 1.0 {
        Style::new().fg(Color::Yellow)
    } else {
        Style::new()
    };
    Row::new(cells).style(style)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::order::{Sort, tests};
    use super::*;
    use crate::status::Amounts;

    const GUIDE: &str = include_str!("../../README.md");

    fn requests(count: u32) -> Amounts {
        [("requests", count)].into_iter().collect()
    }

    fn status(key: &str, policy: &str, used: u32, capacity: u32, delay: u64) -> KeyStatus {
        KeyStatus {
            policy: Some(policy.to_owned()),
            ..tests::status(key, used, capacity, delay)
        }
    }

    fn page() -> Page {
        let busy = status("api.example.com", "10/s", 10, 10, 2_412);
        let mut paused = status("search.example.com", "5/s", 2, 5, 28_300);
        (paused.paused, paused.remaining) = (Some(Duration::from_millis(28_300)), requests(0));
        let long = status("example.org", "5000/s", 1_203, 5_000, 0);
        let odd = status("line\nbreak", "1/s", 0, 1, 0);
        Page {
            keys: 1_204,
            complete: true,
            rows: vec![busy, paused, long, odd],
            passing: 4,
            ..Page::default()
        }
    }

    fn drawn(page: &Page, columns: u16, lines: u16, change: impl Fn(&mut Screen<'_>)) -> String {
        let view = View {
            sort: Sort::Used,
            filter: "ex".to_owned(),
        };
        let mut screen = Screen {
            page,
            view: &view,
            scroll: 0,
            typing: false,
            failure: None,
        };
        change(&mut screen);
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, &screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(columns.into());
        let rows = rows.map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>());
        rows.map(|row| format!("{}\n", row.trim_end())).collect()
    }

    #[test]
    fn the_guide_shows_the_real_screen() {
        let mut page = page();
        page.rows.pop();
        let drawn = drawn(&page, 91, 7, |screen| screen.scroll = 0);
        assert!(GUIDE.contains(&format!("```text\n{drawn}```")), "{drawn}");
    }

    #[test]
    fn keys_with_control_characters_are_encoded() {
        let mut page = page();
        for row in &mut page.rows {
            row.encoded = "line%0Abreak".to_owned();
        }
        let drawn = drawn(&page, 80, 8, |_| {});
        assert!(drawn.contains("line%0Abreak"), "{drawn}");
    }

    #[test]
    fn the_policy_is_left_out_before_the_key_gets_narrow() {
        let names = |columns| {
            let drawn = drawn(&page(), columns, 5, |_| {});
            drawn.lines().nth(1).unwrap().to_owned()
        };
        assert!(names(90).ends_with(" POLICY"));
        assert!(names(89).ends_with(" RATE") && names(77).ends_with(" RATE"));
        assert!(names(76).ends_with(" PAUSED"));
        for columns in 24..200 {
            let shown = super::columns(&page(), columns);
            let widths = widths(&shown, Rect::new(0, 0, columns, 1));
            let least = shown.iter().map(|(_, width)| width);
            assert!(widths.iter().zip(least).all(|(it, least)| it >= least));
            let spaces = SPACING * (u16::try_from(widths.len()).unwrap() - 1);
            assert_eq!(widths.iter().sum::<u16>() + spaces, columns);
        }
    }

    #[test]
    fn priorities_other_than_normal_have_a_column() {
        let mut page = page();
        page.rows.truncate(2);
        let levels = [("high", requests(12)), ("low", requests(3_000))];
        page.rows[0].levels = levels.into_iter().collect();
        page.rows[1].levels = [("normal", requests(5))].into_iter().collect();
        let with_levels = "\
1_204 keys, by used, with \"ex\"
KEY                         USED          LEFT    NEXT      WAITING
api.example.com             10/10         0       2.412s    12 high, 3_000 low
search.example.com          2/5           0       28.3s     5 normal
s sort  / filter  arrows scroll  q quit
";
        assert_eq!(drawn(&page, 78, 5, |_| {}), with_levels);
        page.rows.remove(0);
        assert!(!drawn(&page, 200, 5, |_| {}).contains("WAITING"));
    }

    #[test]
    fn terminals_of_all_sizes_are_drawn() {
        for columns in 1..100 {
            for lines in 1..8 {
                drawn(&page(), columns, lines, |screen| {
                    screen.scroll = lines.into()
                });
            }
        }
        assert!(drawn(&page(), 20, 6, |_| {}).contains("api.example.com"));
    }

    #[test]
    fn the_filter_and_errors_are_shown() {
        assert!(drawn(&page(), 80, 6, |it| it.typing = true).contains("filter: ex_"));
        let mut stale = page();
        (stale.stale, stale.unreadable) = (2, Some("not this".to_owned()));
        let failed = drawn(&stale, 80, 8, |screen| {
            (screen.failure, screen.typing) = (Some("redis is gone"), true);
        });
        let end = "\n2 rows are outdated: redis is gone\nfilter: ex_\n";
        assert!(failed.ends_with(end), "{failed}");
        stale.error = Some("one is out".to_owned());
        let out = drawn(&stale, 80, 8, |_| {});
        let end = "\n2 rows are outdated: one is out\ns sort  / filter  arrows scroll  q quit\n";
        assert!(out.ends_with(end), "{out}");
        (stale.error, stale.about) = (None, true);
        let unreadable = drawn(&stale, 80, 8, |_| {});
        assert!(unreadable.starts_with("about 1_204 keys"));
        assert!(unreadable.contains("\nnot this\ns sort"));
    }
}

//! Draws the table: [`draw`].

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::View;
use super::board::Page;
use crate::standing::Standing;
use crate::time::{brief, count};

/// What is to be seen.
pub(crate) struct Screen<'a> {
    pub(crate) page: &'a Page,
    pub(crate) view: &'a View,
    /// How many rows are above.
    pub(crate) scroll: usize,
    /// Whether a filter is being typed.
    pub(crate) typing: bool,
    /// Why the last refresh failed.
    pub(crate) failure: Option<&'a str>,
}

/// The columns, from the left, with the least width of each; those on the right go first where there is no room.
const COLUMNS: [(&str, u16); 7] = [
    ("KEY", 12),
    ("USED", 13),
    ("LEFT", 7),
    ("NEXT SLOT", 9),
    ("PAUSED", 9),
    ("RATE", 9),
    ("POLICY", 12),
];

/// How many rows fit, of a terminal of this height.
pub(crate) fn rows(height: u16) -> usize {
    usize::from(height.saturating_sub(3))
}

pub(crate) fn draw(frame: &mut Frame<'_>, screen: &Screen<'_>) {
    let wrong = wrong(screen);
    let lines = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(wrong.is_some().into()),
        Constraint::Length(1),
    ];
    let [top, middle, above, bottom] = Layout::vertical(lines).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(head(screen)).style(bold), top);
    frame.render_widget(table(screen, middle), middle);
    if let Some(wrong) = wrong {
        let line = Line::styled(wrong, Style::new().fg(Color::Red));
        frame.render_widget(Paragraph::new(line), above);
    }
    let foot = match screen.typing {
        true => format!("filter: {}_", screen.view.filter),
        false => "s sort  / filter  arrows scroll  q quit".to_owned(),
    };
    frame.render_widget(Paragraph::new(foot), bottom);
}

/// What is wrong, and what follows from it for what is shown.
fn wrong(screen: &Screen<'_>) -> Option<String> {
    let Screen { page, .. } = screen;
    let why = screen.failure.or(page.error.as_deref());
    match (why, page.stale) {
        (None, _) => page.strange.clone(),
        (Some(why), 0) => Some(why.to_owned()),
        (Some(why), 1) => Some(format!("1 row is from before: {why}")),
        (Some(why), stale) => Some(format!("{stale} rows are from before: {why}")),
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
    let fitting = fitting(area.width);
    let widths = COLUMNS[..fitting].iter().map(|&(name, width)| match name {
        "KEY" => Constraint::Fill(2),
        "POLICY" => Constraint::Fill(1),
        _ => Constraint::Length(width),
    });
    let names = COLUMNS[..fitting].iter().map(|(name, _)| *name);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let rows = screen.page.rows.iter().skip(screen.scroll);
    let rows = rows.map(|standing| row(standing, fitting));
    Table::new(rows, widths).header(Row::new(names).style(dim))
}

/// How many columns there is room for, with a space between each two; the key is always there.
fn fitting(width: u16) -> usize {
    let mut taken = 0;
    let fits = |(_, column): &&(&str, u16)| {
        taken += column + 1;
        taken <= width + 1
    };
    COLUMNS.iter().take_while(fits).count().max(1)
}

fn row(standing: &Standing, columns: usize) -> Row<'static> {
    let bound = if standing.exact { "" } else { "\u{2264}" };
    let (used, share) = match standing.busiest() {
        Some((used, share)) => (
            format!("{bound}{}/{}", count(used.used), count(used.capacity)),
            share,
        ),
        None => Default::default(),
    };
    let next = match standing.next_slot.is_zero() {
        true => "now".to_owned(),
        false => brief(standing.next_slot),
    };
    let paused = match (standing.paused, standing.rests) {
        (Some(left), _) => brief(left),
        (None, Some(left)) => format!("rest {}", brief(left)),
        (None, None) => String::new(),
    };
    let rate = standing.rate().map(|rate| format!("{bound}{rate:.1}/s"));
    let cells = [
        standing.shown_key(),
        used,
        count(standing.remaining),
        next,
        paused,
        rate.unwrap_or_default(),
        standing.policy.clone(),
    ];
    let style = if standing.paused.is_some() || standing.rests.is_some() {
        Style::new().fg(Color::Magenta)
    } else if share >= 1.0 {
        Style::new().fg(Color::Yellow)
    } else {
        Style::new()
    };
    Row::new(cells.into_iter().take(columns).map(Cell::from)).style(style)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::order::Sort;
    use super::*;
    use crate::standing::Used;

    const GUIDE: &str = include_str!("../../../docs/cli.md");

    fn standing(key: &str, policy: &str, used: u32, capacity: u32, delay: u64) -> Standing {
        Standing {
            key: Some(key.to_owned()),
            encoded: key.to_owned(),
            policy: policy.to_owned(),
            quotas: vec![Used {
                quota: format!("{capacity}/s"),
                used,
                capacity,
                rate: Some(f64::from(used)),
                window: Duration::from_secs(1),
            }],
            exact: true,
            remaining: capacity - used,
            next_slot: Duration::from_millis(delay),
            full: Duration::from_secs(1),
            paused: None,
            allowance: None,
            rests: None,
            free_slots: 0,
        }
    }

    fn page() -> Page {
        let busy = standing("api.example.com", "10/s", 10, 10, 2_412);
        let mut paused = standing("search.example.com", "5/s", 2, 5, 28_300);
        (paused.paused, paused.remaining) = (Some(Duration::from_millis(28_300)), 0);
        let mut long = standing("GET /users/{id}", "5000/s", 1_203, 5_000, 0);
        long.exact = false;
        let strange = standing("line\nbreak", "1/s", 0, 1, 0);
        Page {
            keys: 1_204,
            about: false,
            complete: true,
            error: None,
            stale: 0,
            strange: None,
            rows: vec![busy, paused, long, strange],
            passing: 4,
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
    fn the_guide_shows_what_is_drawn() {
        let mut page = page();
        page.rows.pop();
        let drawn = drawn(&page, 80, 7, |screen| screen.scroll = 0);
        assert!(GUIDE.contains(&format!("```text\n{drawn}```")), "{drawn}");
    }

    #[test]
    fn a_key_gives_no_orders_to_the_terminal() {
        let mut page = page();
        for row in &mut page.rows {
            row.encoded = "line%0Abreak".to_owned();
        }
        let drawn = drawn(&page, 80, 8, |_| {});
        assert!(
            drawn.contains("line%0Abreak") && drawn.contains("api.example.com"),
            "{drawn}"
        );
    }

    #[test]
    fn a_terminal_of_any_size_is_no_panic() {
        for columns in 1..90 {
            for lines in 1..8 {
                drawn(&page(), columns, lines, |screen| {
                    screen.scroll = lines.into()
                });
            }
        }
        assert!(drawn(&page(), 20, 6, |_| {}).contains("api.example.com"));
    }

    #[test]
    fn what_is_typed_and_what_has_failed_is_told() {
        assert!(drawn(&page(), 80, 6, |it| it.typing = true).contains("filter: ex_"));
        let mut stale = page();
        (stale.stale, stale.strange) = (2, Some("not this".to_owned()));
        let failed = drawn(&stale, 80, 8, |screen| {
            (screen.failure, screen.typing) = (Some("redis is gone"), true);
        });
        let end = "\n2 rows are from before: redis is gone\nfilter: ex_\n";
        assert!(failed.ends_with(end), "{failed}");
        stale.error = Some("one is out".to_owned());
        let out = drawn(&stale, 80, 8, |_| {});
        let end = "\n2 rows are from before: one is out\ns sort  / filter  arrows scroll  q quit\n";
        assert!(out.ends_with(end), "{out}");
        (stale.error, stale.about) = (None, true);
        let strange = drawn(&stale, 80, 8, |_| {});
        assert!(strange.contains("\nnot this\ns sort") && strange.starts_with("about 1_204 keys"));
        assert!(drawn(&page(), 80, 6, |_| {}).contains("with \"ex\""));
    }
}

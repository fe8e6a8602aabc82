//! Draws the table: [`draw`].

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::View;
use super::board::Page;
use super::cut::cut;
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
/// Keys are often told apart by their ends, so that there is room for both.
const COLUMNS: [(&str, u16); 7] = [
    ("KEY", 24),
    ("USED", 13),
    ("LEFT", 7),
    ("NEXT", 9),
    ("PAUSED", 9),
    ("RATE", 9),
    ("POLICY", 12),
];

/// Between each two columns.
const SPACING: u16 = 1;

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
    let widths = widths(area);
    let names = COLUMNS[..widths.len()].iter().map(|(name, _)| *name);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let rows = screen.page.rows.iter().skip(screen.scroll);
    let rows = rows.map(|standing| row(standing, &widths));
    Table::new(rows, Constraint::from_lengths(widths.iter().copied()))
        .column_spacing(SPACING)
        .header(Row::new(names).style(dim))
}

/// How wide the columns are that there is room for. Of what is left, a third is for the policy, the rest for the key.
fn widths(area: Rect) -> Vec<u16> {
    let columns = &COLUMNS[..fitting(area.width)];
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

/// How many columns there is room for; the key is always there.
fn fitting(width: u16) -> usize {
    let mut taken = 0;
    let fits = |(_, column): &&(&str, u16)| {
        taken += column + SPACING;
        taken <= width + SPACING
    };
    COLUMNS.iter().take_while(fits).count().max(1)
}

fn row(standing: &Standing, widths: &[u16]) -> Row<'static> {
    let bound = if standing.exact { "" } else { "\u{2264}" };
    let (used, share) = match standing.busiest() {
        Some((used, share)) => (
            format!("{bound}{}/{}", count(used.used), count(used.capacity)),
            share,
        ),
        None => Default::default(),
    };
    let next = match standing.next.is_zero() {
        true => "now".to_owned(),
        false => brief(standing.next),
    };
    let paused = match (standing.paused, standing.quarantined) {
        (Some(left), _) => brief(left),
        (None, Some(left)) => format!("lost {}", brief(left)),
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
        standing.shown_policy(),
    ];
    let cells = cells.into_iter().zip(COLUMNS).zip(widths);
    let cells = cells.map(|((text, (name, _)), &width)| {
        // The end of a figure is what matters least, and may be taken for the whole.
        let end = match name {
            "KEY" | "POLICY" => width.saturating_sub(1) / 2,
            _ => 0,
        };
        Cell::from(cut(text, width, end))
    });
    let style = if standing.paused.is_some() || standing.quarantined.is_some() {
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
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::order::Sort;
    use super::*;
    use crate::standing::Used;

    const GUIDE: &str = include_str!("../../README.md");

    fn standing(key: &str, policy: &str, used: u32, capacity: u32, delay: u64) -> Standing {
        Standing {
            key: Some(key.to_owned()),
            encoded: key.to_owned(),
            policy: Some(policy.to_owned()),
            quotas: vec![Used {
                quota: format!("{capacity}/s"),
                used,
                capacity,
                rate: Some(f64::from(used)),
                exact: true,
                window: Duration::from_secs(1),
            }],
            exact: true,
            remaining: capacity - used,
            waiting: 0,
            next: Duration::from_millis(delay),
            full: Duration::from_secs(1),
            paused: None,
            allowance: None,
            quarantined: None,
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
        let drawn = drawn(&page, 90, 7, |screen| screen.scroll = 0);
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
    fn long_keys_differ_on_the_screen_by_their_ends() {
        let mut page = page();
        let key = "tenant-0001/GET /users/{id}/orders/";
        page.rows = ["1", "2"]
            .map(|end| standing(&format!("{key}{end}"), "5/s-gcra-burst-20", 0, 5, 0))
            .into();
        page.rows[1].remaining = 5_000_000;
        page.rows[1].quarantined = Some(Duration::from_millis(28_300));
        let narrow = "\
1_204 keys, by used, with \"ex\"
KEY                          USED          LEFT    NEXT      PAUSED    RATE
tenant-0001/GE…{id}/orders/1 0/5           5       now                 0.0/s
tenant-0001/GE…{id}/orders/2 0/5           5_000_… now       lost 28.… 0.0/s
s sort  / filter  arrows scroll  q quit
";
        assert_eq!(drawn(&page, 80, 5, |_| {}), narrow);
    }

    #[test]
    fn the_policy_is_left_out_before_the_key_gets_narrow() {
        let names = |columns| {
            let drawn = drawn(&page(), columns, 5, |_| {});
            drawn.lines().nth(1).unwrap().to_owned()
        };
        assert!(names(89).ends_with(" POLICY"));
        assert!(names(88).ends_with(" RATE") && names(76).ends_with(" RATE"));
        assert!(names(75).ends_with(" PAUSED"));
        for columns in 24..200 {
            let widths = widths(Rect::new(0, 0, columns, 1));
            let least = COLUMNS.iter().map(|(_, width)| width);
            assert!(widths.iter().zip(least).all(|(it, least)| it >= least));
            let spaces = SPACING * (u16::try_from(widths.len()).unwrap() - 1);
            assert_eq!(widths.iter().sum::<u16>() + spaces, columns);
        }
    }

    #[test]
    fn a_terminal_of_any_size_is_no_panic() {
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

//! Plots for a terminal, as text.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget as _};

use crate::time::{seconds, span};

/// Maximum width of a plot.
const MAX_WIDTH: u16 = 100;
const HEIGHT: u16 = 16;

/// Plots the number of departures over time, as a step function, in the width of the terminal up to 100 columns.
pub(crate) fn departures(times: &[f64], end: Duration) -> String {
    draw(times, end, width())
}

fn draw(times: &[f64], end: Duration, width: u16) -> String {
    let all = times.len() as f64;
    let steps = times.iter().zip(0_u32..).flat_map(|(at, before)| {
        let before = f64::from(before);
        [(*at, before), (*at, before + 1.0)]
    });
    let stairs: Vec<_> = steps.chain([(seconds(end), all)]).collect();
    let line = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .data(&stairs);
    let time_axis = Axis::default()
        .bounds([0.0, seconds(end)])
        .labels([Duration::ZERO, end / 2, end].map(span));
    let count_axis = Axis::default()
        .bounds([0.0, all.max(1.0)])
        .labels(["0".to_owned(), all.to_string()]);
    let chart = Chart::new(vec![line]).x_axis(time_axis).y_axis(count_axis);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, HEIGHT));
    chart.render(buffer.area, &mut buffer);
    text(&buffer)
}

/// The width of the terminal, or 80 if standard output is not a terminal or its width is unknown.
fn width() -> u16 {
    const UNKNOWN: u16 = 80;
    let size = stdout().is_terminal().then(terminal::size);
    match size {
        Some(Ok((width, _))) if width > 0 => width.min(MAX_WIDTH),
        _ => UNKNOWN,
    }
}

/// The lines of a buffer, without trailing spaces.
fn text(buffer: &Buffer) -> String {
    let lines = buffer.content().chunks(buffer.area.width.into());
    let lines = lines.map(|cells| {
        let line: String = cells.iter().map(Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_of_all_widths_are_drawn() {
        for width in 1..40 {
            for times in [&[][..], &[0.0], &[0.5; 1_000]] {
                let plot = draw(times, Duration::from_secs(1), width);
                assert_eq!(plot.lines().count(), usize::from(HEIGHT), "{width}");
            }
        }
    }
}

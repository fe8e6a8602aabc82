//! Draws the arrivals: [`draw`].

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use crate::trial::{Arrival, Limit};

const SIZE: (u32, u32) = (1200, 800);
const LIMIT: RGBColor = RGBColor(200, 30, 30);
const COUNT: RGBColor = RGBColor(30, 90, 160);

const OTHER: RGBColor = RGBColor(150, 150, 150);

/// The palette of Okabe and Ito, for color-blind readers. It repeats from the eighth process on.
const PROCESSES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// The arrivals under another quota, and its text.
type Other<'a> = Option<(&'a str, &'a [Arrival])>;

/// Draws each arrival over time, and below it the number of arrivals in the preceding window, also under the other
/// quota.
pub(crate) fn draw(
    file: &Path,
    limit: &Limit,
    arrivals: &[Arrival],
    other: Other<'_>,
) -> anyhow::Result<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    let title = format!(
        "{} requests of {} processes, at most {} in any {:?}",
        arrivals.len(),
        arrivals
            .iter()
            .map(|arrival| arrival.replica + 1)
            .max()
            .unwrap_or(0),
        limit.limit,
        limit.window
    );
    let area = root
        .margin(8, 0, 0, 0)
        .titled(&title, ("sans-serif", 26))
        .map_err(|error| anyhow!("{error}"))?;
    let (upper, lower) = area.split_vertically(400);
    draw_arrivals(&upper, arrivals).map_err(|error| anyhow!("{error}"))?;
    draw_counts(&lower, limit, arrivals, other).map_err(|error| anyhow!("{error}"))?;
    root.present().map_err(|error| anyhow!("{error}"))
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw_arrivals<'a>(area: &Area<'a>, arrivals: &[Arrival]) -> Drawn<'a> {
    let seconds = seconds(arrivals);
    let most = arrivals.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end(&seconds), 0.0..most * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("seconds since the first arrival")
        .y_desc("requests that have arrived")
        .y_label_formatter(&|count| format!("{count:.0}"))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 17))
        .draw()?;
    let replicas = arrivals
        .iter()
        .map(|arrival| arrival.replica)
        .max()
        .unwrap_or(0);
    for replica in 0..=replicas {
        let color = PROCESSES[replica % PROCESSES.len()];
        let numbered = seconds.iter().zip(1..).zip(arrivals);
        let of_it = numbered.filter(|(_, arrival)| arrival.replica == replica);
        chart
            .draw_series(
                of_it.map(|((&at, number), _)| {
                    Circle::new((at, f64::from(number)), 2, color.filled())
                }),
            )?
            .label(format!("process {}", replica + 1))
            .legend(move |(x, y)| Circle::new((x + 10, y), 4, color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 16))
        .draw()
}

fn draw_counts<'a>(
    area: &Area<'a>,
    limit: &Limit,
    arrivals: &[Arrival],
    other: Other<'_>,
) -> Drawn<'a> {
    let window = limit.window.as_secs_f64();
    let until = end(&seconds(arrivals));
    let counts = counts(&seconds(arrivals), window);
    let beside = other.map(|(_, arrivals)| self::counts(&seconds(arrivals), window));
    let most = counts
        .iter()
        .chain(beside.iter().flatten())
        .map(|(_, count)| *count)
        .fold(f64::from(limit.limit), f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..until, 0.0..most * 1.3)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("seconds since the first arrival")
        .y_desc(format!("arrivals in the last {:?}", limit.window))
        .y_label_formatter(&|count| format!("{count:.0}"))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 17))
        .draw()?;
    if let Some((by, counts)) = other.map(|(by, _)| by).zip(beside) {
        chart
            .draw_series(LineSeries::new(
                counts.into_iter().filter(|(at, _)| *at <= until),
                OTHER.stroke_width(2),
            ))?
            .label(format!("under {by}"))
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], OTHER.stroke_width(2)));
    }
    let allowed = f64::from(limit.limit);
    chart
        .draw_series(LineSeries::new(
            [(0.0, allowed), (until, allowed)],
            LIMIT.stroke_width(2),
        ))?
        .label(format!("limit: {}", limit.limit))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], LIMIT.stroke_width(2)));
    chart
        .draw_series(LineSeries::new(
            counts.into_iter().filter(|(at, _)| *at <= until),
            COUNT.stroke_width(2),
        ))?
        .label(format!("in the last {:?}", limit.window))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], COUNT.stroke_width(2)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 16))
        .draw()
}

fn seconds(arrivals: &[Arrival]) -> Vec<f64> {
    let first = arrivals
        .first()
        .map_or_else(Default::default, |arrival| arrival.at);
    arrivals
        .iter()
        .map(|arrival| (arrival.at - first).as_secs_f64())
        .collect()
}

fn end(seconds: &[f64]) -> f64 {
    seconds.last().copied().unwrap_or(0.0).max(0.1) * 1.02
}

/// The corners of the number of arrivals in the preceding window.
fn counts(seconds: &[f64], window: f64) -> Vec<(f64, f64)> {
    let enter = seconds.iter().map(|&at| (at, 1.0));
    let leave = seconds.iter().map(|&at| (at + window, -1.0));
    let mut changes: Vec<_> = leave.chain(enter).collect();
    // A stable sort: of two arrivals exactly one window apart, the first leaves before the second enters.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut count = 0.0;
    let mut corners = Vec::with_capacity(2 * changes.len());
    for (at, change) in changes {
        corners.push((at, count));
        count += change;
        corners.push((at, count));
    }
    corners
}

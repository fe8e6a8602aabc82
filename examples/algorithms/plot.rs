//! Draws a run: [`draw`].

use std::time::Duration;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use tower_throttle::WindowStart;

use crate::burst::{LIMIT, Run, WINDOW};

const SIZE: (u32, u32) = (720, 300);

/// Ranges of the axes, the same for all runs so that the plots are comparable.
const SECONDS: f64 = 52.0;
const REQUESTS: f64 = 44.0;
const IN_WINDOW: f64 = 22.0;

const FONT: &str = "sans-serif";
/// Left end of the time axis, in pixels.
const LEFT: i32 = 40;
/// Right end of the time axis, in pixels.
const RIGHT: i32 = 708;

// The palette of Okabe and Ito, for color-blind readers.
const DEPARTED: RGBColor = RGBColor(0, 114, 178);
const REFUSED: RGBColor = RGBColor(213, 94, 0);
const EXCESS: RGBColor = RGBColor(230, 159, 0);
const ARRIVED: RGBColor = RGBColor(110, 110, 110);
const WAITING: RGBColor = RGBColor(225, 225, 225);
const BOUNDARY: RGBColor = RGBColor(190, 190, 190);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Error<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Boundaries of fixed windows, in seconds.
#[derive(Debug, Default)]
pub(crate) struct Windows(Vec<f64>);

impl Windows {
    pub(crate) fn of(start: WindowStart, departures: &[Duration]) -> Self {
        let length = WINDOW.as_secs_f64();
        let mut boundaries = vec![0.0];
        match start {
            WindowStart::Clock => {
                let whole = (1..).map(|number| f64::from(number) * length);
                boundaries.extend(whole.take_while(|&at| at < SECONDS));
            }
            // Windows that start with the first request.
            _ => {
                let mut end = 0.0;
                for at in departures.iter().map(Duration::as_secs_f64) {
                    if at >= end {
                        boundaries.extend([at, at + length]);
                        end = at + length;
                    }
                }
            }
        }
        boundaries.dedup();
        boundaries.retain(|at| (0.1..SECONDS).contains(at));
        Self(boundaries)
    }
}

/// Draws the departures over time, and below them the number of departures in the preceding window.
pub(crate) fn draw(title: &str, run: &Run, windows: &Windows, most: u64) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| {
            let (upper, lower) = root.split_vertically(148);
            draw_departures(&upper, title, run, windows)?;
            draw_counts(&lower, run, windows, most)?;
            root.present()
        });
        drawn.map_err(|error| anyhow!("{error}"))?;
    }
    // This is the default value.
    Ok(svg.replace(" opacity=\"1\"", ""))
}

fn draw_departures<'a>(
    area: &Area<'a>,
    title: &str,
    run: &Run,
    windows: &Windows,
) -> Result<(), Error<'a>> {
    write(area, (LEFT, 4), 15, &BLACK, title)?;
    write(area, (RIGHT - 48, 6), 13, &DEPARTED, "departed")?;
    write(area, (RIGHT - 106, 6), 13, &ARRIVED, "waiting")?;
    area.draw(&Rectangle::new(
        [(RIGHT - 122, 6), (RIGHT - 111, 15)],
        WAITING.filled(),
    ))?;
    write(area, (RIGHT - 176, 6), 13, &ARRIVED, "arrived")?;
    if !run.refusals.is_empty() {
        let refused = format!("× {} refused", run.refusals.len());
        write(area, (RIGHT - 262, 6), 13, &REFUSED, &refused)?;
    }
    let mut chart = axes(area, REQUESTS, 2)?;

    let departed = steps(&run.departures);
    let waiting = steps(&run.accepted()).into_iter();
    let waiting = waiting
        .chain(departed.iter().rev().copied())
        .collect::<Vec<_>>();
    chart.draw_series([Polygon::new(waiting, WAITING.filled())])?;
    mark(&mut chart, windows, REQUESTS)?;
    chart.draw_series(LineSeries::new(steps(&run.arrivals), ARRIVED))?;
    chart.draw_series(LineSeries::new(departed, DEPARTED.stroke_width(2)))?;
    let refused = run
        .refused()
        .map(|(number, at)| (at.as_secs_f64(), number as f64));
    chart.draw_series(refused.map(|place| Cross::new(place, 2, REFUSED)))?;
    Ok(())
}

fn draw_counts<'a>(
    area: &Area<'a>,
    run: &Run,
    windows: &Windows,
    most: u64,
) -> Result<(), Error<'a>> {
    let title = format!(
        "departed in the last {} s: at most {most}",
        WINDOW.as_secs()
    );
    write(area, (LEFT, 6), 13, &DEPARTED, &title)?;
    write(
        area,
        (RIGHT - 45, 6),
        13,
        &REFUSED,
        &format!("limit: {LIMIT}"),
    )?;
    let mut chart = axes(area, IN_WINDOW, 22)?;
    mark(&mut chart, windows, IN_WINDOW)?;

    let limit = f64::from(LIMIT);
    let counts = counts(&run.departures);
    let excess: Vec<_> = counts
        .iter()
        .map(|&(at, count)| (at, count.max(limit)))
        .collect();
    if most > u64::from(LIMIT) {
        chart.draw_series([Polygon::new(excess, EXCESS.filled())])?;
    }
    chart.draw_series(LineSeries::new([(0.0, limit), (SECONDS, limit)], REFUSED))?;
    chart.draw_series(LineSeries::new(counts, DEPARTED.stroke_width(2)))?;
    Ok(())
}

/// A chart with `bottom` pixels for the labels of the time axis.
fn axes<'a>(area: &Area<'a>, top: f64, bottom: u32) -> Result<Chart<'a>, Error<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(24)
        .margin_right(12)
        .margin_bottom(2)
        .x_label_area_size(bottom)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..SECONDS, 0.0..top)?;
    let seconds = |at: &f64| format!("{at:.0} s");
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(if bottom > 10 { 6 } else { 0 })
        .y_labels(4)
        .x_label_formatter(&seconds)
        .y_label_formatter(&|count| format!("{count:.0}"))
        .label_style((FONT, 12))
        .draw()?;
    Ok(chart)
}

/// Draws the boundaries of the windows.
fn mark<'a>(chart: &mut Chart<'a>, windows: &Windows, top: f64) -> Result<(), Error<'a>> {
    let line = |&at: &f64| PathElement::new([(at, 0.0), (at, top)], BOUNDARY);
    chart.draw_series(windows.0.iter().map(line))?;
    Ok(())
}

fn write<'a>(
    area: &Area<'a>,
    at: (i32, i32),
    size: u32,
    color: &RGBColor,
    text: &str,
) -> Result<(), Error<'a>> {
    area.draw(&Text::new(text, at, (FONT, size).into_font().color(color)))
}

/// The corners of the cumulative number of events.
fn steps(times: &[Duration]) -> Vec<(f64, f64)> {
    corners(times.iter().map(|&at| (at, 1)))
}

/// The corners of the number of departures in the preceding window.
fn counts(departures: &[Duration]) -> Vec<(f64, f64)> {
    let leave = departures.iter().map(|&at| (at + WINDOW, -1));
    let enter = departures.iter().map(|&at| (at, 1));
    let mut changes: Vec<_> = leave.chain(enter).collect();
    changes.sort_by_key(|(at, _)| *at);
    corners(changes.into_iter())
}

/// The corners of a step function. Changes within a tenth of a second, about a pixel, are merged: otherwise, the guard
/// between the end of a window and the next departure would show as a dip.
fn corners(changes: impl Iterator<Item = (Duration, i32)>) -> Vec<(f64, f64)> {
    let mut count = 0;
    let mut corners = vec![(0.0, 0.0)];
    for (at, change) in changes {
        let tenth = (at.as_millis() / 100) as f64 / 10.0;
        if tenth >= SECONDS {
            break;
        }
        if corners.last().is_none_or(|(at, _)| *at < tenth) {
            corners.extend([(tenth, f64::from(count)); 2]);
        }
        count += change;
        if let Some(corner) = corners.last_mut() {
            corner.1 = f64::from(count);
        }
    }
    // Simultaneous changes can cancel out, and leave no corner.
    corners.dedup();
    corners.push((SECONDS, f64::from(count)));
    corners
}

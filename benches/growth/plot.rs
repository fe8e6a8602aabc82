//! Draws curves: [`Chart`].

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::data_uris::data_uris;

const SIZE: (u32, u32) = (720, 240);
const FONT: &str = "sans-serif";
/// Left end of the axes, in pixels.
const LEFT: i32 = 48;

const TEXT: RGBColor = BLACK;
const GRID: RGBColor = RGBColor(225, 225, 225);
/// The palette of Okabe and Ito, for color-blind readers.
const LINES: [RGBColor; 3] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Error<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Two panels side by side.
pub(crate) struct Chart {
    name: &'static str,
    panels: [Panel; 2],
}

/// Curves over a growing parameter.
pub(crate) struct Panel {
    title: &'static str,
    grows: &'static str,
    logarithmic: bool,
    lines: Vec<(&'static str, Vec<(f64, f64)>)>,
}

impl Chart {
    pub(crate) fn new(name: &'static str, panels: [Panel; 2]) -> Self {
        Self { name, panels }
    }

    /// Writes the chart into this folder.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let drawn = root.fill(&WHITE).and_then(|()| {
                let (left, right) = root.split_horizontally(SIZE.0 / 2);
                self.panels[0].draw(&left)?;
                self.panels[1].draw(&right)?;
                root.present()
            });
            drawn.map_err(|error| anyhow!("{error}"))?;
        }
        let path = folder.join(format!("{}.svg", self.name));
        // This is the default value.
        let svg = svg.replace(" opacity=\"1\"", "");
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Panel {
    pub(crate) fn new(title: &'static str, grows: &'static str) -> Self {
        Self {
            title,
            grows,
            logarithmic: false,
            lines: Vec::new(),
        }
    }

    /// Uses a logarithmic scale.
    pub(crate) fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// Adds a curve of (parameter, figure). The name of a single curve may be empty.
    pub(crate) fn line(mut self, name: &'static str, places: Vec<(f64, f64)>) -> Self {
        self.lines.push((name, places));
        self
    }

    fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Error<'a>> {
        write(area, (LEFT, 6), 14, &TEXT, self.title)?;
        let places = self.lines.iter().flat_map(|(_, places)| places);
        let (x, y): (Vec<_>, Vec<_>) = places.copied().unzip();
        // The base of the logarithmic axis is the ratio of successive values.
        let base = match x[..] {
            [first, second, ..] => second / first,
            _ => 10.0,
        };
        let right = greatest(&x).log(base);
        let (bottom, top) = if self.logarithmic {
            (least(&y).log10().floor(), greatest(&y).log10().ceil())
        } else {
            // Leaves room for the legend.
            (0.0, greatest(&y) * (1.1 + 0.1 * self.lines.len() as f64))
        };
        let mut chart = ChartBuilder::on(area)
            .margin_top(28)
            .margin_right(16)
            .margin_bottom(4)
            .x_label_area_size(34)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..right * 1.04, bottom..top)?;
        let labels = |range: f64| range.round() as usize + 1;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_labels(labels(right))
            .y_labels(if self.logarithmic {
                labels(top - bottom)
            } else {
                5
            })
            .x_label_formatter(&|place| short(base.powf(*place)))
            .y_label_formatter(&|place| match self.logarithmic {
                true => short(10_f64.powf(*place)),
                false => short(*place),
            })
            .x_desc(self.grows)
            .label_style((FONT, 12))
            .axis_desc_style((FONT, 13))
            .draw()?;
        for ((_, places), color) in self.lines.iter().zip(LINES) {
            let place =
                |&(x, y): &(f64, f64)| (x.log(base), if self.logarithmic { y.log10() } else { y });
            let line: Vec<_> = places.iter().map(place).collect();
            let dots = line.iter().map(|at| Circle::new(*at, 3, color.filled()));
            chart.draw_series(dots)?;
            chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        }
        self.legend(area)
    }

    /// Draws the legend, from right to left.
    fn legend<'a>(&self, area: &Area<'a>) -> Result<(), Error<'a>> {
        for (row, ((name, _), color)) in self.lines.iter().zip(LINES).enumerate() {
            let right = SIZE.0 as i32 / 2 - 16;
            let style = (FONT, 13).into_font().color(&color);
            let style = style.pos(Pos::new(HPos::Right, VPos::Top));
            area.draw(&Text::new(*name, (right, 26 + 14 * row as i32), style))?;
        }
        Ok(())
    }
}

/// Writes link definitions for all growth charts in the folder.
pub(crate) fn write_data_uris(folder: &Path) -> anyhow::Result<()> {
    let mut plots = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("growth-") && name.ends_with(".svg") {
            plots.push((name.into_owned(), fs::read_to_string(&path)?));
        }
    }
    plots.sort();
    let plots = plots.iter().map(|(name, text)| (&**name, &**text));
    let path = folder.join("growth-data-uris.md");
    fs::write(&path, data_uris("benchmark `growth`", plots))
        .with_context(|| format!("cannot write {}", path.display()))
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

fn greatest(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::MIN, f64::max)
}

fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::MAX, f64::min)
}

/// `1 k` for 1,000.
fn short(figure: f64) -> String {
    match figure {
        _ if figure >= 999_999.5 => format!("{:.0} M", figure / 1e6),
        _ if figure >= 999.5 => format!("{:.0} k", figure / 1e3),
        _ => format!("{}", (figure * 1e3).round() / 1e3),
    }
}

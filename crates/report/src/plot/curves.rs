//! Curves over any two axes, each plain or logarithmic, with marked positions.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::TickAxis;
use super::sweep::{self, LEGEND_WIDTH};
use super::{Area, Drawn, FAINT, Series, WIDTH, anchored, font};

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero on, evenly.
    Plain,
    /// By powers of ten.
    Tens,
    /// By powers of two.
    Twos,
}

/// An axis and its labels.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: &'static str,
    /// The scale.
    pub scale: Scale,
    /// The text of a tick.
    pub words: fn(f64) -> String,
}

impl Axis {
    /// The position of a value on the axis.
    fn place(&self, value: f64) -> Option<f64> {
        match self.scale {
            Scale::Plain => Some(value),
            Scale::Tens => (value > 0.0).then(|| value.log10()),
            Scale::Twos => (value > 0.0).then(|| value.log2()),
        }
    }

    /// The value at a position.
    fn value(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Plain => place,
            Scale::Tens => 10f64.powf(place),
            Scale::Twos => place.exp2(),
        }
    }

    fn ticks(&self, values: impl Iterator<Item = f64>) -> Option<TickAxis> {
        match self.scale {
            Scale::Plain => Some(TickAxis::plain(values)),
            Scale::Tens => Some(TickAxis::nanos(values)),
            Scale::Twos => TickAxis::bytes(values),
        }
    }
}

/// Draws the panel.
pub(super) fn draw(
    area: &Area<'_>,
    x: &Axis,
    y: &Axis,
    series: &[Series],
    marks: &[(f64, String)],
) -> Drawn {
    let (plot, legend) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
    let points = || (series.iter()).flat_map(|series| series.points.iter().copied());
    let xs = x.ticks(points().map(|(x, _)| x));
    let ys = y.ticks(points().map(|(_, y)| y));
    let (Some(xs), Some(ys)) = (xs, ys) else {
        return Ok(());
    };
    let top = plotters::coord::ranged1d::Ranged::range(&ys);
    let mut chart = ChartBuilder::on(&plot)
        .margin_top(10)
        .margin_right(16)
        .margin_left(8)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(xs, ys)?;
    chart
        .configure_mesh()
        .axis_style(FAINT)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .label_style(font(13.0))
        .axis_desc_style(font(14.0))
        .x_desc(x.label)
        .y_desc(y.label)
        .x_label_formatter(&|place| (x.words)(x.value(*place)))
        .y_label_formatter(&|place| (y.words)(y.value(*place)))
        .draw()?;
    let grey = RGBColor(120, 120, 120);
    let mut below = series.len() as i32;
    for (at, name) in marks {
        let Some(at) = x.place(*at) else { continue };
        let ends = [(at, top.start), (at, top.end)];
        chart.draw_series(DashedLineSeries::new(ends, 2, 4, grey.stroke_width(1)))?;
        let line = 16 + 20 * below;
        legend.draw(&PathElement::new([(19, line - 8), (19, line + 8)], grey))?;
        legend.draw(&Text::new(
            name.clone(),
            (40, line),
            anchored(font(13.0), HPos::Left),
        ))?;
        below += 1;
    }
    for series in series {
        let points: Vec<(f64, f64)> = (series.points.iter())
            .filter_map(|(px, py)| Some((x.place(*px)?, y.place(*py)?)))
            .collect();
        sweep::line(&mut chart, series, &points)?;
    }
    sweep::names(&legend, series)
}

//! Time over size: a line for each case, its reference dashed in the same colour.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::TickAxis;
use super::{
    Area, COLOURS, Drawn, FAINT, Series, SeriesKind, WIDTH, anchored, diamond, font, mark,
};
use crate::units;

pub(super) const LEGEND_WIDTH: u32 = 290;

pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<TickAxis, TickAxis>>;

/// Draws the panel.
pub(super) fn draw(area: &Area<'_>, series: &[Series]) -> Drawn {
    let (plot, legend) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
    let points = || {
        series
            .iter()
            .flat_map(|series| series.points.iter().copied())
    };
    let nanos = TickAxis::nanos(points().map(|(_, nanos)| nanos));
    let Some(bytes) = TickAxis::bytes(points().map(|(bytes, _)| bytes)) else {
        return Ok(());
    };
    let mut chart = ChartBuilder::on(&plot)
        .margin_top(10)
        .margin_right(16)
        .margin_left(8)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(bytes, nanos)?;
    chart
        .configure_mesh()
        .axis_style(FAINT)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .label_style(font(13.0))
        .axis_desc_style(font(14.0))
        .x_desc("size, bytes")
        .y_desc("time for one operation")
        .x_label_formatter(&|bits| units::bytes(bits.exp2()))
        .y_label_formatter(&|log| units::nanos(10f64.powf(*log)))
        .draw()?;
    for series in series {
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter(|(bytes, nanos)| *bytes > 0.0 && *nanos > 0.0)
            .map(|(bytes, nanos)| (bytes.log2(), nanos.log10()))
            .collect();
        line(&mut chart, series, &points)?;
    }
    names(&legend, series)
}

/// Draws a series at the given points.
pub(super) fn line(chart: &mut Chart<'_, '_>, series: &Series, points: &[(f64, f64)]) -> Drawn {
    let style = colour(series).stroke_width(2);
    match series.kind {
        SeriesKind::Ours => {
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, style.filled())))?;
        }
        SeriesKind::Line => {
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        }
        SeriesKind::Reference => {
            let dashed = colour(series).mix(0.8).stroke_width(2);
            chart.draw_series(DashedLineSeries::new(points.iter().copied(), 6, 4, dashed))?;
        }
        SeriesKind::Peer => {
            chart.draw_series(
                points
                    .iter()
                    .map(|at| EmptyElement::at(*at) + diamond((0, 0), colour(series))),
            )?;
        }
        SeriesKind::Other(kind) => {
            let thin = colour(series).mix(0.5).stroke_width(1);
            chart.draw_series(LineSeries::new(points.iter().copied(), thin))?;
            let marks = points.iter();
            let marks = marks.map(|at| EmptyElement::at(*at) + mark(kind, (0, 0), colour(series)));
            chart.draw_series(marks)?;
        }
    }
    Ok(())
}

/// The legend: a line for each series.
pub(super) fn names(legend: &Area<'_>, series: &[Series]) -> Drawn {
    for (line, series) in series.iter().enumerate() {
        let y = 16 + 20 * line as i32;
        legend.draw(&Text::new(
            series.name.clone(),
            (40, y),
            anchored(font(13.0), HPos::Left),
        ))?;
        sample(legend, series, y)?;
    }
    Ok(())
}

/// Draws the piece of line or the mark before a name in a legend.
fn sample(legend: &Area<'_>, series: &Series, y: i32) -> Drawn {
    let style = colour(series).stroke_width(2);
    match series.kind {
        SeriesKind::Ours => {
            legend.draw(&PathElement::new([(6, y), (32, y)], style))?;
            legend.draw(&Circle::new((19, y), 3, style.filled()))?;
        }
        SeriesKind::Line => legend.draw(&PathElement::new([(6, y), (32, y)], style))?,
        SeriesKind::Reference => {
            for from in [6, 16, 26] {
                legend.draw(&PathElement::new(
                    [(from, y), (from + 6, y)],
                    colour(series).mix(0.8).stroke_width(2),
                ))?;
            }
        }
        SeriesKind::Peer => legend.draw(&diamond((19, y), colour(series)))?,
        SeriesKind::Other(kind) => {
            let thin = colour(series).mix(0.5).stroke_width(1);
            legend.draw(&PathElement::new([(6, y), (32, y)], thin))?;
            legend.draw(&mark(kind, (19, y), colour(series)))?;
        }
    }
    Ok(())
}

fn colour(of: &Series) -> RGBColor {
    COLOURS[of.colour % COLOURS.len()]
}

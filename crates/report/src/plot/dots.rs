//! Single figures, one a line: ours as a dot, the reference as a tick, the peer's as a diamond.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::TickAxis;
use super::{
    Area, COLOURS, DOT_HEIGHT, Dot, Drawn, FAINT, INK, WIDTH, anchored, diamond, font, mark,
};
use crate::units;

const NAME_WIDTH: u32 = 300;
const OTHERS: RGBColor = COLOURS[2];
const VALUE_WIDTH: u32 = 230;

/// Draws the panel.
pub(super) fn draw(area: &Area<'_>, dots: &[Dot], peer_name: &str) -> Drawn {
    let all = dots
        .iter()
        .flat_map(|dot| {
            let others = dot.others.iter().map(|(_, _, nanos)| Some(*nanos));
            [Some(dot.ours), dot.reference, dot.peer]
                .into_iter()
                .chain(others)
        })
        .flatten();
    let nanos = TickAxis::nanos(all);
    let (area, legend) = area.split_vertically(DOT_HEIGHT * dots.len() as u32 + 38);
    let mut chart = ChartBuilder::on(&area)
        .margin_left(NAME_WIDTH)
        .margin_right(VALUE_WIDTH)
        .x_label_area_size(34)
        .build_cartesian_2d(nanos, (dots.len() as f64)..0.0)?;
    chart
        .configure_mesh()
        .axis_style(FAINT)
        .disable_y_mesh()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .label_style(font(13.0))
        .x_label_formatter(&|log| units::nanos(10f64.powf(*log)))
        .draw()?;
    let (ours, peer) = (COLOURS[0], COLOURS[1]);
    let log = |nanos: f64| nanos.max(f64::MIN_POSITIVE).log10();
    for (line, dot) in dots.iter().enumerate() {
        let y = line as f64 + 0.5;
        let middle = (DOT_HEIGHT as f64 * y) as i32 + 2;
        area.draw(&Text::new(
            dot.name.clone(),
            (NAME_WIDTH as i32 - 14, middle),
            anchored(font(13.0), HPos::Right),
        ))?;
        area.draw(&Text::new(
            in_words(dot),
            ((WIDTH - VALUE_WIDTH) as i32 + 14, middle),
            anchored(font(13.0), HPos::Left),
        ))?;
        if let Some(nanos) = dot.reference {
            let tick = EmptyElement::at((log(nanos), y))
                + PathElement::new([(0, -8), (0, 8)], INK.stroke_width(2));
            chart.draw_series([tick])?;
        }
        if let Some(nanos) = dot.peer {
            chart.draw_series([EmptyElement::at((log(nanos), y)) + diamond((0, 0), peer)])?;
        }
        for (kind, _, nanos) in &dot.others {
            let shape = EmptyElement::at((log(*nanos), y)) + mark(*kind, (0, 0), OTHERS);
            chart.draw_series([shape])?;
        }
        chart.draw_series([Circle::new((log(dot.ours), y), 5, ours.filled())])?;
    }
    let mut x = NAME_WIDTH as i32;
    legend.draw(&Circle::new((x, 12), 5, ours.filled()))?;
    legend.draw(&Text::new(
        "Hydrant",
        (x + 12, 12),
        anchored(font(13.0), HPos::Left),
    ))?;
    if dots.iter().any(|dot| dot.reference.is_some()) {
        x += 110;
        legend.draw(&PathElement::new([(x, 4), (x, 20)], INK.stroke_width(2)))?;
        legend.draw(&Text::new(
            "reference of the same run",
            (x + 12, 12),
            anchored(font(13.0), HPos::Left),
        ))?;
    }
    if dots.iter().any(|dot| dot.peer.is_some()) {
        x += 220;
        legend.draw(&diamond((x, 12), peer))?;
        legend.draw(&Text::new(
            peer_name,
            (x + 12, 12),
            anchored(font(13.0), HPos::Left),
        ))?;
    }
    let mut named: Vec<&str> = Vec::new();
    for (kind, name, _) in dots.iter().flat_map(|dot| &dot.others) {
        if named.contains(name) {
            continue;
        }
        named.push(*name);
        x += if named.len() == 1 { 220 } else { 110 };
        legend.draw(&mark(*kind, (x, 12), OTHERS))?;
        legend.draw(&Text::new(
            *name,
            (x + 12, 12),
            anchored(font(13.0), HPos::Left),
        ))?;
    }
    Ok(())
}

fn in_words(dot: &Dot) -> String {
    match dot.reference {
        Some(reference) => format!(
            "{}  (reference {})",
            units::nanos(dot.ours),
            units::nanos(reference)
        ),
        None => units::nanos(dot.ours),
    }
}

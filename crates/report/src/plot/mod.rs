//! Pictures of measurements, as SVG or HTML pages: size sweeps with lines, single figures as dots,
//! and curves over any axes.
//!
//! Axes of time are logarithmic, because one picture shows nanoseconds and milliseconds. Legends
//! and values are beside the plotting area, never on it, so no text covers a line.

mod axis;
mod curves;
mod dots;
mod file;
mod sweep;

pub use curves::{Axis, Scale};
pub use file::PictureFile;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const WIDTH: u32 = 1080;
const HEADER: u32 = 64;
const SWEEP_HEIGHT: u32 = 430;
const DOT_HEIGHT: u32 = 24;
const DOTS_MARGIN: u32 = 96;
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(222, 222, 222);

/// Okabe and Ito's colours, which all readers can tell apart, and four darker ones, because there
/// are ten strategies. Black is reserved for references.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(140, 110, 60),
    RGBColor(110, 110, 110),
    RGBColor(92, 60, 156),
    RGBColor(150, 20, 40),
];

/// A picture: a title above a column of panels.
#[derive(Debug)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// The smaller line below the title: the machine, the run.
    pub subtitle: String,
    /// The panels from top to bottom.
    pub panels: Vec<Panel>,
}

/// A part of a picture.
#[derive(Debug)]
pub enum Panel {
    /// Nanoseconds over bytes.
    Sweep {
        /// The title of the panel.
        title: String,
        /// The series in the order of the legend.
        series: Vec<Series>,
    },
    /// Curves over any two axes.
    Curves {
        /// The title of the panel.
        title: String,
        /// The axis to the right.
        x: Axis,
        /// The axis upwards.
        y: Axis,
        /// The series in the order of the legend.
        series: Vec<Series>,
        /// Marked positions on the x axis, with their labels.
        marks: Vec<(f64, String)>,
    },
    /// One figure a line.
    Dots {
        /// The title of the panel.
        title: String,
        /// The dots from top to bottom.
        dots: Vec<Dot>,
        /// The owner of the [peer's](Dot::peer) figures.
        peer: &'static str,
    },
}

/// A line of a sweep.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The kind of figures.
    pub kind: SeriesKind,
    /// The colour number. Series with the same number belong together: Hydrant's and its reference.
    pub colour: usize,
    /// Bytes and nanoseconds, or values of the panel's axes.
    pub points: Vec<(f64, f64)>,
}

/// The kind of figures in a series, which decides how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// Measured of Hydrant: a full line with dots.
    Ours,
    /// Measured of Hydrant at so many points that dots would hide the line, or as steps.
    Line,
    /// The bare reference of the same run: a dashed line.
    Reference,
    /// Published or measured elsewhere: diamonds without a line.
    Peer,
    /// Measured of rivals in the same run: marks on a thin line.
    Other(Mark),
}

/// The mark of a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A square.
    Square,
    /// A triangle.
    Triangle,
}

/// A line of a dot panel, in nanoseconds.
#[derive(Debug)]
pub struct Dot {
    /// The name on the left.
    pub name: String,
    /// Hydrant's figure.
    pub ours: f64,
    /// The bare reference.
    pub reference: Option<f64>,
    /// The peer's figure.
    pub peer: Option<f64>,
    /// The rivals' figures of the same run, with their names.
    pub others: Vec<(Mark, &'static str, f64)>,
}

impl Panel {
    fn height(&self) -> u32 {
        match self {
            Panel::Sweep { .. } | Panel::Curves { .. } => SWEEP_HEIGHT,
            Panel::Dots { dots, .. } => DOTS_MARGIN + DOT_HEIGHT * dots.len() as u32,
        }
    }
}

impl Figure {
    /// The picture as SVG.
    pub fn svg(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut text = String::new();
        let height = HEADER + self.panels.iter().map(Panel::height).sum::<u32>();
        {
            let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
            root.fill(&WHITE)?;
            let (header, mut rest) = root.split_vertically(HEADER);
            header.draw(&Text::new(self.title.clone(), (16, 14), font(22.0)))?;
            header.draw(&Text::new(self.subtitle.clone(), (16, 42), font(13.0)))?;
            for panel in &self.panels {
                let (area, below) = rest.split_vertically(panel.height());
                rest = below;
                panel.draw(&area)?;
            }
            root.present()?;
        }
        Ok(text)
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        area.draw(&Text::new(title(self).to_owned(), (16, 10), font(16.0)))?;
        let (_, area) = area.split_vertically(28);
        match self {
            Panel::Sweep { series, .. } => sweep::draw(&area, series),
            Panel::Curves {
                x,
                y,
                series,
                marks,
                ..
            } => curves::draw(&area, x, y, series, marks),
            Panel::Dots { dots, peer, .. } => dots::draw(&area, dots, peer),
        }
    }
}

fn title(panel: &Panel) -> &str {
    match panel {
        Panel::Sweep { title, .. } | Panel::Curves { title, .. } | Panel::Dots { title, .. } => {
            title
        }
    }
}

fn font(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn diamond(at: (i32, i32), colour: RGBColor) -> Polygon<(i32, i32)> {
    let (x, y) = at;
    Polygon::new(
        [(x - 6, y), (x, y - 6), (x + 6, y), (x, y + 6)],
        colour.filled(),
    )
}

fn mark(mark: Mark, at: (i32, i32), colour: RGBColor) -> Polygon<(i32, i32)> {
    let (x, y) = at;
    let corners = match mark {
        Mark::Square => vec![
            (x - 4, y - 4),
            (x + 4, y - 4),
            (x + 4, y + 4),
            (x - 4, y + 4),
        ],
        Mark::Triangle => vec![(x - 5, y + 4), (x, y - 5), (x + 5, y + 4)],
    };
    Polygon::new(corners, colour.filled())
}

fn anchored(style: TextStyle<'static>, side: HPos) -> TextStyle<'static> {
    style.pos(Pos::new(side, VPos::Center))
}

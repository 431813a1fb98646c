//! Writes a file for each table and picture, and one self-contained page with all of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::ReproduceError;
use super::part::{Cell, Criterion, Part, Sheet};
use super::published::{self, Paper};
use super::runner::FinishedExperiment;

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #282828; background: #fff; max-width: 1120px; margin: 0 auto; padding: 24px; }
h1 { font-size: 28px; } h2 { font-size: 22px; margin-top: 56px; border-top: 1px solid #ddd; padding-top: 24px; }
h3 { font-size: 16px; margin-bottom: 4px; }
p { max-width: 860px; }
table { border-collapse: collapse; margin: 8px 0 20px; font-size: 14px; }
th, td { padding: 3px 12px; border-bottom: 1px solid #e6e6e6; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #bbb; font-weight: 600; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.yes { color: #00704f; font-weight: 700; } td.no { color: #b34700; font-weight: 700; }
figure { margin: 16px 0; } svg { max-width: 100%; height: auto; }
.small { font-size: 13px; color: #666; } .scroll { overflow-x: auto; }
details { margin: 8px 0; } nav a { margin-right: 16px; display: inline-block; }
table.sum { table-layout: fixed; width: 100%; } table.sum td, table.sum th { padding: 3px 8px; }
a { color: #0072b2; }
";

/// Writes everything. Returns the path of the page.
pub(crate) fn write(
    out: &Path,
    quick: bool,
    outcomes: &[FinishedExperiment],
) -> Result<PathBuf, ReproduceError> {
    let papers = published::papers()?;
    let mut body = String::new();
    let parts = || {
        outcomes
            .iter()
            .filter_map(|outcome| outcome.part.as_ref().ok())
    };
    summary(&mut body, parts().flat_map(|part| &part.criteria));
    for outcome in outcomes {
        match &outcome.part {
            Ok(part) => {
                files(out, part)?;
                chapter(&mut body, part, outcome.took.as_secs_f64())?;
            }
            Err(why) => {
                let _ = write!(
                    body,
                    "<h2 id=\"{0}\">{0}</h2>\n<p class=\"no\">This experiment failed: {1}</p>\n",
                    outcome.id,
                    escaped(&why.to_string())
                );
            }
        }
    }
    add_figures_of_papers(&mut body, papers);
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>hydrant-repro papers</title><style>{STYLE}</style></head>\n<body>\n{}{body}</body></html>\n",
        head(quick, outcomes),
    );
    let path = out.join("index.html");
    put(&path, &page)?;
    Ok(path)
}

fn head(quick: bool, outcomes: &[FinishedExperiment]) -> String {
    let mut text = String::from("<h1>The papers' experiments, reproduced</h1>\n");
    text += "<p>Hydrant ran the experiments of four papers on their machines in virtual time: the \
             same library as on a real network, over a simulated NIC, link and host with the \
             figures of the papers. No figure of a machine was \
             taken from a curve that is shown here; where one comes from a table or a number in the \
             text that is, it is said beside it. Reasons for a difference that were not tried by \
             themselves are called probable. Lines and dots are ours; diamonds are the papers' figures, where the text \
             gives one.</p>\n";
    if quick {
        text += "<p><strong>A quick run: fewer operations and sizes than the full one. Figures are \
                 rougher, and start-up weighs more in them.</strong></p>\n";
    }
    text += "<nav class=\"small\">";
    for outcome in outcomes {
        let _ = write!(text, "<a href=\"#{0}\">{0}</a> ", outcome.id);
    }
    text + "</nav>\n"
}

fn summary<'a>(body: &mut String, criteria: impl Iterator<Item = &'a Criterion>) {
    body.push_str(
        "<h2>What was expected, and what came out</h2>\n<table class=\"sum\">\n\
         <tr><th style=\"width:12%\">experiment</th><th style=\"width:23%\">criterion</th>\
         <th style=\"width:14%\">paper</th><th style=\"width:17%\">ours</th>\
         <th style=\"width:6%\">within</th><th>why, or what to keep in mind</th></tr>\n",
    );
    for criterion in criteria {
        let (class, mark) = if criterion.met {
            ("yes", "✓")
        } else {
            ("no", "✗")
        };
        let _ = writeln!(
            body,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td><td>{2}</td>\
             <td>{3}</td><td class=\"{class}\">{mark}</td><td>{4}</td></tr>",
            criterion.part,
            escaped(&criterion.what),
            escaped(&criterion.paper),
            escaped(&criterion.ours),
            escaped(&criterion.why),
        );
    }
    body.push_str("</table>\n");
}

fn chapter(body: &mut String, part: &Part, seconds: f64) -> Result<(), ReproduceError> {
    let _ = writeln!(body, "<h2 id=\"{}\">{}</h2>", part.id, escaped(&part.title));
    for note in &part.notes {
        let _ = writeln!(body, "<p>{}</p>", escaped(note));
    }
    for picture in &part.pictures {
        let svg = svg(picture)?;
        let _ = writeln!(
            body,
            "<figure id=\"{0}\">{svg}<figcaption class=\"small\">{0}.svg, {0}.csv</figcaption></figure>",
            picture.name
        );
    }
    for sheet in &part.sheets {
        if sheet.hidden {
            let _ = write!(
                body,
                "<details><summary class=\"small\">{} as a table</summary>",
                escaped(&sheet.title)
            );
        } else {
            let _ = writeln!(body, "<h3>{}</h3>", escaped(&sheet.title));
        }
        table(body, sheet);
        if sheet.hidden {
            body.push_str("</details>\n");
        }
    }
    let _ = writeln!(
        body,
        "<p class=\"small\">Took {seconds:.1} s of real time.</p>"
    );
    Ok(())
}

fn table(body: &mut String, sheet: &Sheet) {
    let numbers: Vec<bool> = (0..sheet.columns.len())
        .map(|column| {
            let cells = || sheet.rows.iter().filter_map(|row| row.get(column));
            cells().any(|cell| matches!(cell, Cell::Number(_)))
                && !cells().any(|cell| matches!(cell, Cell::Text(_)))
        })
        .collect();
    body.push_str("<div class=\"scroll\"><table>\n<tr>");
    for (name, number) in sheet.columns.iter().zip(&numbers) {
        let class = if *number { " class=\"n\"" } else { "" };
        let _ = write!(body, "<th{class}>{}</th>", escaped(&heading(name)));
    }
    body.push_str("</tr>\n");
    for row in &sheet.rows {
        body.push_str("<tr>");
        for (cell, number) in row.iter().zip(&numbers) {
            let class = if *number { " class=\"n\"" } else { "" };
            let _ = write!(body, "<td{class}>{}</td>", escaped(&cell.words()));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
}

/// A column's name for people, with its unit after a comma.
fn heading(name: &str) -> String {
    const UNITS: [(&str, &str); 7] = [
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_s", "s"),
        ("_mbs", "MB/s"),
        ("_pct", "%"),
        ("_mb", "MB"),
        ("_bytes", "bytes"),
    ];
    let found = UNITS
        .iter()
        .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, unit)));
    match found {
        Some((name, unit)) => format!("{}, {unit}", name.replace('_', " ")),
        None => name.replace('_', " "),
    }
}

fn add_figures_of_papers(body: &mut String, papers: &BTreeMap<String, Paper>) {
    body.push_str("<h2 id=\"papers\">What the papers say</h2>\n");
    for paper in papers.values() {
        let _ = writeln!(body, "<h3>{}</h3>", escaped(&paper.name));
        body.push_str("<div class=\"scroll\"><table>\n<tr><th>figure</th><th class=\"n\">value</th><th>from</th></tr>\n");
        for (name, figure) in paper.figures() {
            let _ = writeln!(
                body,
                "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                escaped(&name.replace('_', " ")),
                escaped(&figure.words()),
                escaped(&figure.source)
            );
        }
        body.push_str("</table></div>\n");
    }
}

fn files(out: &Path, part: &Part) -> Result<(), ReproduceError> {
    for sheet in &part.sheets {
        put(&out.join(format!("{}.csv", sheet.name)), &sheet.csv())?;
    }
    for picture in &part.pictures {
        put(&out.join(format!("{}.svg", picture.name)), &svg(picture)?)?;
    }
    Ok(())
}

fn svg(picture: &super::part::Picture) -> Result<String, ReproduceError> {
    picture.figure.svg().map_err(|why| ReproduceError::Draw {
        name: picture.name.clone(),
        why: why.to_string(),
    })
}

fn put(path: &Path, text: &str) -> Result<(), ReproduceError> {
    std::fs::write(path, text).map_err(|why| ReproduceError::Write {
        path: path.to_owned(),
        why,
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_for_people() {
        assert_eq!(heading("mean_put_us"), "mean put, µs");
        assert_eq!(heading("puts"), "puts");
        assert_eq!(heading("no_unpin_mbs"), "no unpin, MB/s");
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(escaped("a < b & c"), "a &lt; b &amp; c");
    }
}

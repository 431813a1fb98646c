//! The file of a picture: the ending of its name decides the format.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Figure;

/// A file whose name decides the format of a picture.
#[derive(Clone, Debug)]
pub struct PictureFile {
    path: PathBuf,
    form: Form,
}

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Svg,
    /// A page that holds the picture.
    Html,
}

/// The reason why a name is refused.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The name has another ending.
    #[error("pictures are written as .svg or .html, and {} ends in neither", .0.display())]
    Ending(PathBuf),
}

impl FromStr for PictureFile {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let path = PathBuf::from(text);
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let form = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("svg") => Form::Svg,
            Some("html" | "htm") => Form::Html,
            _ => return Err(NameError::Ending(path)),
        };
        Ok(Self { path, form })
    }
}

impl PictureFile {
    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file if it is missing. A missing or read-only folder must show before minutes of
    /// measuring.
    pub fn reserve(&self) -> io::Result<()> {
        let mut options = fs::File::options();
        options.append(true).create(true).open(&self.path).map(drop)
    }

    /// Writes the picture in the format of the name.
    pub fn write(&self, figure: &Figure) -> super::Drawn {
        let svg = figure.svg()?;
        let text = match self.form {
            Form::Svg => svg,
            Form::Html => page(&figure.title, &svg),
        };
        Ok(fs::write(&self.path, text)?)
    }
}

fn page(title: &str, svg: &str) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <body>\n{svg}\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides_what_is_written() {
        let folder = std::env::temp_dir();
        let figure = Figure {
            title: "a < b & c".to_owned(),
            subtitle: "nothing".to_owned(),
            panels: Vec::new(),
        };
        for (ending, begins) in [
            ("svg", "<svg"),
            ("html", "<!DOCTYPE html>"),
            ("SVG", "<svg"),
        ] {
            let path = folder.join(format!("hydrant-{}.{ending}", std::process::id()));
            let file: PictureFile = path.to_str().unwrap().parse().unwrap();
            file.write(&figure).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            fs::remove_file(&path).unwrap();
            assert!(text.starts_with(begins), "{ending}: {text}");
            assert!(text.contains("</svg>"), "{ending}");
        }
    }

    #[test]
    fn other_endings_are_refused_with_the_list_of_endings() {
        for name in ["a.png", "a", "svg", "folder.svg/a", ".svg", "a.svg.gz"] {
            let why = name.parse::<PictureFile>().unwrap_err().to_string();
            assert!(why.contains(".svg or .html") && why.contains(name), "{why}");
        }
    }
}

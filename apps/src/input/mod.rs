//! Elements from files and into files: raw little-endian, or text.

mod error;
mod numbers;

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

pub use error::InputError;
pub use numbers::FileNumber;

/// The elements of a file, with the length of its lines if it is text.
#[derive(Debug, PartialEq)]
pub struct Elements<T> {
    /// In the order of the file.
    pub values: Vec<T>,
    /// The number of elements on each line that has any; empty if the file is raw.
    pub lines: Vec<usize>,
}

/// Reads all elements: numbers between blanks if the name ends in `.txt`, else raw little-endian.
///
/// # Errors
/// [`InputError`] if the file cannot be read, has no elements, or holds other data.
pub fn read<T: FileNumber>(path: &Path) -> Result<Elements<T>, InputError> {
    let bytes = fs::read(path).map_err(|cause| InputError::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    let elements = if is_text(path) {
        read_text(path, &bytes)?
    } else {
        read_raw(path, &bytes)?
    };
    if elements.values.is_empty() {
        let path = path.to_owned();
        return Err(InputError::Empty {
            path,
            what: T::WHAT,
        });
    }
    Ok(elements)
}

/// Writes elements in the same two formats, `line` to a line.
///
/// # Errors
/// [`InputError::Unwritable`].
pub fn write<T: FileNumber>(path: &Path, values: &[T], line: usize) -> Result<(), InputError> {
    let writing = || {
        let mut file = BufWriter::new(File::create(path)?);
        if is_text(path) {
            for line in values.chunks(line.max(1)) {
                let words: Vec<String> = line.iter().map(T::to_string).collect();
                writeln!(file, "{}", words.join(" "))?;
            }
        } else {
            for value in values {
                file.write_all(&value.to_bytes())?;
            }
        }
        file.flush()
    };
    writing().map_err(|cause| InputError::Unwritable {
        path: path.to_owned(),
        cause,
    })
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "txt")
}

fn read_raw<T: FileNumber>(path: &Path, bytes: &[u8]) -> Result<Elements<T>, InputError> {
    let (elements, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(InputError::Torn {
            path: path.to_owned(),
            bytes: bytes.len(),
            what: T::WHAT,
        });
    }
    let values: Vec<T> = elements.iter().map(|bytes| T::from_bytes(*bytes)).collect();
    match values.iter().position(|value| !value.is_usable()) {
        None => Ok(Elements {
            values,
            lines: Vec::new(),
        }),
        Some(at) => Err(InputError::Unusable {
            path: path.to_owned(),
            at,
            value: values[at].to_string(),
            what: T::WHAT,
        }),
    }
}

fn read_text<T: FileNumber>(path: &Path, bytes: &[u8]) -> Result<Elements<T>, InputError> {
    let mut elements = Elements {
        values: Vec::new(),
        lines: Vec::new(),
    };
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let before = elements.values.len();
        for word in line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
        {
            let value = (std::str::from_utf8(word).ok())
                .and_then(|word| word.parse().ok())
                .filter(T::is_usable);
            elements
                .values
                .push(value.ok_or_else(|| InputError::Garbage {
                    path: path.to_owned(),
                    line: number + 1,
                    word: shortened(word),
                    what: T::WHAT,
                })?);
        }
        if elements.values.len() > before {
            elements.lines.push(elements.values.len() - before);
        }
    }
    Ok(elements)
}

/// The part of an arbitrary word that an error shows.
fn shortened(word: &[u8]) -> String {
    const MAX_SHOWN: usize = 24;
    let shown: String = String::from_utf8_lossy(word)
        .chars()
        .take(MAX_SHOWN)
        .collect();
    let dots = if word.len() > MAX_SHOWN { "..." } else { "" };
    format!("{}{dots}", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        (folder, path)
    }

    fn error_of<T: FileNumber + std::fmt::Debug>(name: &str, content: &[u8]) -> String {
        let (folder, path) = file(name, content);
        let error = read::<T>(&path).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn an_unreadable_file_is_named_with_its_fault() {
        assert_eq!(
            error_of::<i64>("a.bin", &[0; 13]),
            "a.bin is no list of 64-bit integers: its 13 bytes are no multiple of 8"
        );
        assert_eq!(
            error_of::<i64>("a.bin", b""),
            "a.bin is empty: it must hold 64-bit integers"
        );
        assert_eq!(
            error_of::<f64>("a.txt", b" \n\n"),
            "a.txt is empty: it must hold finite numbers"
        );
        assert_eq!(
            error_of::<i64>("a.txt", b"1 2\n3 four\n"),
            "line 2 of a.txt has \"four\", which is none of the 64-bit integers it must hold"
        );
        assert_eq!(
            error_of::<i64>("a.txt", b"9223372036854775808"),
            "line 1 of a.txt has \"9223372036854775808\", which is none of the 64-bit integers it \
             must hold"
        );
        assert!(error_of::<f64>("a.txt", b"1 NaN").contains("\"NaN\""));
        assert!(error_of::<f64>("a.txt", b"1 \xff\xfe").contains("line 1"));
        let mut raw = 1.0_f64.to_le_bytes().to_vec();
        raw.extend(f64::INFINITY.to_le_bytes());
        assert_eq!(
            error_of::<f64>("a.bin", &raw),
            "element 1 of a.bin is inf, which is none of the finite numbers it must hold"
        );
        let missing = read::<i64>(Path::new("/no/such/file"))
            .unwrap_err()
            .to_string();
        assert!(
            missing.starts_with("cannot read /no/such/file: "),
            "{missing}"
        );
        let unwritable = write(Path::new("/no/such/file"), &[1_i64], 1)
            .unwrap_err()
            .to_string();
        assert!(
            unwritable.starts_with("cannot write /no/such/file: "),
            "{unwritable}"
        );
    }

    #[test]
    fn lines_are_measured() {
        let (_folder, path) = file("m.txt", b"1 2\r\n\n 3.5\t-4\n");
        let read = read::<f64>(&path).unwrap();
        assert_eq!(
            (read.values, read.lines),
            (vec![1.0, 2.0, 3.5, -4.0], vec![2, 2])
        );
    }

    proptest! {
        #[test]
        fn written_files_are_read_back(
            keys in proptest::collection::vec(any::<i64>(), 1..50),
            floats in proptest::collection::vec(-1e300_f64..1e300, 1..50),
            line in 1_usize..9,
        ) {
            for name in ["x.txt", "x.bin"] {
                let (_folder, path) = file(name, b"");
                write(&path, &keys, line).unwrap();
                prop_assert_eq!(&read::<i64>(&path).unwrap().values, &keys);
                write(&path, &floats, line).unwrap();
                prop_assert_eq!(&read::<f64>(&path).unwrap().values, &floats);
            }
        }
    }
}

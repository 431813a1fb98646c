//! How types of elements are numbered in headers, and told to people.

/// The types by their number, with their bytes. The first is any type that a function reduces.
const KINDS: [(&str, u64); 19] = [
    ("any", 0),
    ("u8", 1),
    ("i8", 1),
    ("u16", 2),
    ("i16", 2),
    ("u32", 4),
    ("i32", 4),
    ("u64", 8),
    ("i64", 8),
    ("usize", size_of::<usize>() as u64),
    ("isize", size_of::<isize>() as u64),
    ("u128", 16),
    ("i128", 16),
    ("f32", 4),
    ("f64", 8),
    ("f16", 2),
    ("bf16", 2),
    ("Complex<f32>", 8),
    ("Complex<f64>", 16),
];

/// Marks the number of a type of value in that of [`Located`](super::Located) values.
pub(super) const LOCATED: u8 = 1 << 5;
/// Bytes of the index beside such a value.
const INDEX: u64 = 8;

/// For people: the type of this number whose elements have so many bytes.
pub(super) fn describe(kind: u8, bytes: u64) -> String {
    let Some((name, scalar)) = KINDS.get(usize::from(kind & !LOCATED)) else {
        return "unknown".to_owned();
    };
    let (name, scalar) = if kind & LOCATED == 0 {
        ((*name).to_owned(), *scalar)
    } else {
        (format!("Located<{name}>"), scalar + INDEX)
    };
    match bytes.checked_div(scalar) {
        Some(len) if bytes != scalar => format!("[{name}; {len}]"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Located, Reducible, op::kind_of},
        describe,
    };

    fn described<T: Reducible>() -> String {
        describe(kind_of::<T>(), size_of::<T>() as u64)
    }

    #[test]
    fn types_have_their_names() {
        assert_eq!(described::<u8>(), "u8");
        assert_eq!(described::<usize>(), "usize");
        assert_eq!(described::<i128>(), "i128");
        assert_eq!(described::<f64>(), "f64");
        assert_eq!(described::<Located<f64>>(), "Located<f64>");
        assert_eq!(described::<[f32; 3]>(), "[f32; 3]");
        assert_eq!(described::<[[i16; 3]; 2]>(), "[i16; 6]");
        assert_eq!(described::<[Located<u32>; 2]>(), "[Located<u32>; 2]");
        assert_eq!(describe(0, 40), "any");
        assert_eq!(describe(200, 40), "unknown");
    }

    #[cfg(feature = "half")]
    #[test]
    fn half_precision_has_its_names() {
        assert_eq!(described::<half::f16>(), "f16");
        assert_eq!(described::<Located<half::bf16>>(), "Located<bf16>");
    }

    #[cfg(feature = "num-complex")]
    #[test]
    fn complex_numbers_have_their_names() {
        assert_eq!(described::<num_complex::Complex<f32>>(), "Complex<f32>");
        assert_eq!(described::<num_complex::Complex<f64>>(), "Complex<f64>");
    }
}

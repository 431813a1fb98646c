//! The signatures of handlers: ranks compare them at registration.

use std::any::type_name;

use bytemuck::{Pod, Zeroable};

/// The bytes of text in a signature.
const TEXT: usize = 128;

/// The number, the name and the types of a handler or a function, as ranks exchange them.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct HandlerSignature {
    number: u64,
    /// The hash of the whole text.
    hash: u64,
    /// The beginning of the text, padded with zeros.
    text: [u8; TEXT],
}

impl HandlerSignature {
    /// Returns the text of a handler, which has a number alone.
    pub(crate) fn of_handler() -> String {
        "a handler".to_owned()
    }

    /// Returns the text of a function from `A` to `R` with this name in the program.
    pub(crate) fn of_function<A, R>(name: &str) -> String {
        format!("{name}: {} -> {}", type_name::<A>(), type_name::<R>())
    }

    pub(crate) fn new(number: u16, full: &str) -> Self {
        let mut end = full.len().min(TEXT);
        while !full.is_char_boundary(end) {
            end -= 1;
        }
        let mut text = [0; TEXT];
        text[..end].copy_from_slice(&full.as_bytes()[..end]);
        Self {
            number: u64::from(number),
            hash: fnv(full.as_bytes()),
            text,
        }
    }

    /// Describes the registration, for an error.
    pub(crate) fn describe(&self) -> String {
        let end = self.text.iter().position(|byte| *byte == 0);
        let text = String::from_utf8_lossy(&self.text[..end.unwrap_or(TEXT)]);
        format!("registers handler number {}, {text}", self.number)
    }
}

/// FNV-1a, which is the same in every build of a program.
fn fnv(bytes: &[u8]) -> u64 {
    (bytes.iter()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_differ_if_texts_differ_beyond_the_kept_part() {
        let long = "é".repeat(200);
        let (one, other) = (format!("{long}a"), format!("{long}b"));
        let (one, other) = (
            HandlerSignature::new(3, &one),
            HandlerSignature::new(3, &other),
        );
        assert!(one != other && one.text == other.text);
        assert!(one.describe().starts_with("registers handler number 3, éé"));
        assert_eq!(HandlerSignature::of_function::<u8, ()>("f"), "f: u8 -> ()");
    }
}

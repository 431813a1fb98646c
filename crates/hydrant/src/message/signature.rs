//! What ranks compare of the handlers that they register.

use std::any::type_name;

use bytemuck::{Pod, Zeroable};

/// Bytes of its text that go with a signature.
const TEXT: usize = 128;

/// The number, the name and the types of a handler or a function, as ranks tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Signature {
    number: u64,
    /// Of the whole text.
    hash: u64,
    /// The beginning of the text, and zeros.
    text: [u8; TEXT],
}

impl Signature {
    /// A handler, which has a number alone.
    pub(crate) fn of_handler() -> String {
        "a handler".to_owned()
    }

    /// A function from `A` to `R` that the program calls so.
    pub(crate) fn of_function<A, R>(name: &str) -> String {
        format!("{name}: {} -> {}", type_name::<A>(), type_name::<R>())
    }

    pub(crate) fn new(number: u16, said: &str) -> Self {
        let mut end = said.len().min(TEXT);
        while !said.is_char_boundary(end) {
            end -= 1;
        }
        let mut text = [0; TEXT];
        text[..end].copy_from_slice(&said.as_bytes()[..end]);
        Self {
            number: u64::from(number),
            hash: fnv(said.as_bytes()),
            text,
        }
    }

    /// What is registered, for an error.
    pub(crate) fn said(&self) -> String {
        let end = self.text.iter().position(|byte| *byte == 0);
        let text = String::from_utf8_lossy(&self.text[..end.unwrap_or(TEXT)]);
        format!("registers handler number {}, {text}", self.number)
    }
}

/// FNV-1a: the same in every build of a program.
fn fnv(bytes: &[u8]) -> u64 {
    (bytes.iter()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_beyond_the_text_differs_yet() {
        let long = "é".repeat(200);
        let (one, other) = (format!("{long}a"), format!("{long}b"));
        let (one, other) = (Signature::new(3, &one), Signature::new(3, &other));
        assert!(one != other && one.text == other.text);
        assert!(one.said().starts_with("registers handler number 3, éé"));
        assert_eq!(Signature::of_function::<u8, ()>("f"), "f: u8 -> ()");
    }
}

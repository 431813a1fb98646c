//! Words as a shell and as QEMU read them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `word` as a shell reads it back to the byte, whatever is in it.
pub(crate) fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        if byte == b'\'' {
            quoted.extend_from_slice(br"'\''");
        } else {
            quoted.push(byte);
        }
    }
    quoted.push(b'\'');
    quoted
}

/// A path as the value of one of QEMU's comma-separated options.
pub(crate) fn option_value(path: &Path) -> std::ffi::OsString {
    let bytes = path.as_os_str().as_bytes();
    let mut value = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        value.push(byte);
        if byte == b',' {
            value.push(b',');
        }
    }
    std::os::unix::ffi::OsStringExt::from_vec(value)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words: [&[u8]; 7] = [
            b"plain",
            b"two words",
            b"it's",
            b"a\nnew line\n",
            b"$HOME `id` \"q\" \\ *",
            b"",
            b"\xff not unicode",
        ];
        for word in words {
            let mut script = b"printf %s ".to_vec();
            script.extend(quoted(OsStr::from_bytes(word)));
            let output = Command::new("sh")
                .arg("-c")
                .arg(OsStr::from_bytes(&script))
                .output();
            assert_eq!(output.unwrap().stdout, word);
        }
    }

    #[test]
    fn commas_do_not_end_an_option() {
        assert_eq!(option_value(Path::new("/a,b/c")), "/a,,b/c");
        assert_eq!(option_value(Path::new("/plain")), "/plain");
    }
}

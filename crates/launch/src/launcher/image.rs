//! A program that only the kernel runs, never a shell.
#![allow(
    unsafe_code,
    reason = "std offers no way to run a program without a shell's help"
)]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::ptr;

/// A program, its arguments and its environment, ready for the kernel.
///
/// [`Command`] runs programs like the C library's `execvp`, which gives a file that the kernel
/// cannot run to `/bin/sh`. The shell would then execute the bytes of a corrupt program as
/// commands.
pub(super) struct ProgramImage {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl ProgramImage {
    /// Returns the image that `command` would run if it were spawned now. Its program must be a
    /// path.
    pub(super) fn of(command: &Command) -> io::Result<ProgramImage> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let mut variables: BTreeMap<OsString, OsString> = env::vars_os().collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => drop(variables.insert(name.into(), value.into())),
                None => drop(variables.remove(name)),
            }
        }
        let variables = variables.into_iter().map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            c_string(OsStr::from_bytes(&variable))
        });
        Ok(ProgramImage {
            path: c_string(command.get_program())?,
            arguments: words.map(c_string).collect::<io::Result<_>>()?,
            environment: variables.collect::<io::Result<_>>()?,
        })
    }

    /// Makes the function that runs the image between fork and exec. It returns only on failure,
    /// with the error.
    pub(super) fn ready(self) -> impl FnMut() -> io::Error + Send + Sync + 'static {
        let pointers = Pointers {
            arguments: null_terminated(&self.arguments),
            environment: null_terminated(&self.environment),
        };
        move || pointers.run(&self)
    }
}

/// The pointers that the kernel reads, made before the fork because nothing may allocate after it.
struct Pointers {
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
}

// SAFETY: the pointers point into the strings of an image, which lives beside them and which nobody
// changes.
unsafe impl Send for Pointers {}
// SAFETY: as above, and the pointers are only read.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn run(&self, image: &ProgramImage) -> io::Error {
        // SAFETY: the path is a C string. Both arrays hold pointers to C strings of `image` and end
        // in a null pointer.
        unsafe {
            libc::execve(
                image.path.as_ptr(),
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            );
        }
        io::Error::last_os_error()
    }
}

fn null_terminated(strings: &[CString]) -> Vec<*const c_char> {
    let pointers = strings.iter().map(|string| string.as_ptr());
    pointers.chain([ptr::null()]).collect()
}

fn c_string(word: &OsStr) -> io::Result<CString> {
    CString::new(word.as_bytes()).map_err(|_| {
        let why = format!("`{}` has a zero in it", word.display());
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

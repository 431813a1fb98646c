//! A terminal that is redrawn, and its keys.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use hydrant_launch::launcher::EndSignals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Another screen than the one with the shell's output, without a cursor.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
/// The upper left corner.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR_REST: &str = "\x1b[J";

/// The size of a terminal that does not tell it.
const SIZE: (usize, usize) = (80, 24);

/// A key of the user, or another reason to draw anew.
pub(super) enum ScreenKey {
    /// `q`, the interrupt key, the end of input, or a signal that ends the process.
    Quit,
    /// `p`: show or hide the firehoses by peer.
    Peers,
    /// A signal, such as that of another size.
    Resized,
    /// The time is over.
    None,
}

/// The terminal of standard input and output, until it is dropped.
pub(super) struct Screen {
    before: Termios,
    /// Dropped last: a signal that ends the process acts when the terminal is as it was before.
    signals: EndSignals,
}

impl Screen {
    /// Takes the terminal over, if both standard input and output are one.
    pub(super) fn open() -> Option<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let signals = EndSignals::hold().ok()?;
        let before = tcgetattr(io::stdin()).ok()?;
        let mut without_lines = before.clone();
        // The interrupt key is read as a key, so that the terminal is given back.
        let lines = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        without_lines.local_modes.remove(lines);
        tcsetattr(io::stdin(), OptionalActions::Now, &without_lines).ok()?;
        let screen = Self { before, signals };
        write(OPEN).ok()?;
        Some(screen)
    }

    /// Returns the columns and the rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => SIZE,
        }
    }

    /// Draws a text, of which lines that do not fit are left out.
    pub(super) fn draw(&mut self, text: &str) -> io::Result<()> {
        let (_, rows) = self.size();
        write(&frame(text, rows))
    }

    /// Waits for a key.
    pub(super) fn key(&mut self, time: Duration) -> ScreenKey {
        let input = io::stdin();
        let mut fds = [
            PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, Timespec::try_from(time).ok().as_ref()) {
            Ok(0) => return ScreenKey::None,
            Ok(_) if !fds[1].revents().is_empty() => return ScreenKey::Quit,
            Ok(_) => {}
            Err(_) => return ScreenKey::Resized,
        }
        let mut keys = [0; 64];
        // Not by the buffered reader of `stdin`, which would keep keys that `poll` does not see.
        match rustix::io::read(&input, &mut keys[..]) {
            Ok(0) | Err(_) => ScreenKey::Quit,
            Ok(_) if keys.contains(&b'q') || keys.contains(&CTRL_C) => ScreenKey::Quit,
            Ok(_) if keys.contains(&b'p') => ScreenKey::Peers,
            Ok(_) => ScreenKey::Resized,
        }
    }
}

/// The byte of the interrupt key.
const CTRL_C: u8 = 3;

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(CLOSE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The text, a line for each row. The last row tells how many lines are left out, or the keys.
fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1);
    let left_out = lines.len().saturating_sub(room);
    let mut frame = HOME.to_owned();
    for line in lines.iter().take(room) {
        frame += line;
        frame += CLEAR_LINE;
    }
    frame += CLEAR_REST;
    frame += &match left_out {
        0 => "q: quit  p: peers".to_owned(),
        more => format!("q: quit  p: peers  ({more} more lines; --once prints all)"),
    };
    frame
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_no_more_lines_than_rows() {
        let text: String = (0..50).map(|line| format!("line {line}\n")).collect();
        for rows in [1, 2, 24, 51, 100] {
            let frame = frame(&text, rows);
            assert!(frame.lines().count() <= rows, "{rows}");
            assert_eq!(frame.contains("line 49"), rows > 50);
            assert_eq!(frame.contains("more lines"), rows <= 50, "{rows}");
        }
    }
}

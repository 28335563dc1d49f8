//! Keys that are pressed on the terminal.
//!
//! They are read here and not by crossterm, whose reader turns in circles for ever when the
//! terminal is gone, and then sees no signal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Bytes of keys that are read at once.
const KEYS_BYTES_MAX: usize = 256;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PressedKey {
    /// A letter, a digit or a sign.
    Sign(char),
    /// The key Ctrl with the letter C.
    Interrupt,
    Enter,
    Escape,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// A key that does nothing here.
    Unassigned,
}

/// What a terminal sends for keys: the bytes after ESC.
const SEQUENCES: [(&[u8], PressedKey); 14] = [
    (b"[A", PressedKey::Up),
    (b"OA", PressedKey::Up),
    (b"[B", PressedKey::Down),
    (b"OB", PressedKey::Down),
    (b"[H", PressedKey::Home),
    (b"OH", PressedKey::Home),
    (b"[1~", PressedKey::Home),
    (b"[7~", PressedKey::Home),
    (b"[F", PressedKey::End),
    (b"OF", PressedKey::End),
    (b"[4~", PressedKey::End),
    (b"[8~", PressedKey::End),
    (b"[5~", PressedKey::PageUp),
    (b"[6~", PressedKey::PageDown),
];

/// The keys of the terminal.
pub(crate) struct Keyboard(OwnedFd);

impl Keyboard {
    /// Those at standard input, or of the terminal of this session if that is none.
    pub(crate) fn open() -> io::Result<Keyboard> {
        let stdin = io::stdin();
        match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned().map(Keyboard),
            false => File::open("/dev/tty").map(|terminal| Keyboard(terminal.into())),
        }
    }

    /// The keys that are pressed next, or none after `limit` or a signal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn pressed(&self, limit: Duration) -> io::Result<Vec<PressedKey>> {
        let limit = Timespec::try_from(limit).map_err(|_| ErrorKind::InvalidInput)?;
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut watched, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            ready => ready?,
        };
        let mut bytes = [0; KEYS_BYTES_MAX];
        match read(&self.0, &mut bytes) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the terminal is gone")),
            Ok(len) => Ok(keys_of(&bytes[..len])),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The keys that `bytes` stand for. What a terminal sends for one key comes at once.
fn keys_of(mut bytes: &[u8]) -> Vec<PressedKey> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        let (key, len) = match first {
            0x1b => after_escape(rest),
            b'\r' | b'\n' => (PressedKey::Enter, 0),
            0x03 => (PressedKey::Interrupt, 0),
            b' '..=b'~' => (PressedKey::Sign(char::from(*first)), 0),
            _ => (PressedKey::Unassigned, 0),
        };
        keys.push(key);
        bytes = &rest[len..];
    }
    keys
}

/// The key whose bytes begin with ESC and go on with `rest`, and how many of these are its own.
fn after_escape(rest: &[u8]) -> (PressedKey, usize) {
    if let Some((sequence, key)) = SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence)) {
        return (*key, sequence.len());
    }
    match rest {
        [b'[' | b'O', parameters @ ..] => {
            let end = parameters.iter().position(|byte| (0x40..=0x7e).contains(byte));
            (PressedKey::Unassigned, end.map_or(rest.len(), |end| end + 2))
        }
        _ => (PressedKey::Escape, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PressedKey::{Down, End, Enter, Escape, Home, Interrupt, PageDown, PageUp, Sign, Unassigned, Up};
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_are_the_keys_that_terminals_send_them_for() {
        assert_eq!(keys_of(b"q?\r\x03\n"), [Sign('q'), Sign('?'), Enter, Interrupt, Enter]);
        assert_eq!(keys_of(b"\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1bOF"), [Up, Down, PageUp, PageDown, Home, End]);
        assert_eq!(keys_of(b"\x1b"), [Escape]);
        assert_eq!(keys_of(b"\x1b\x1b[1;5Cs"), [Escape, Unassigned, Sign('s')]);
        assert_eq!(keys_of("ä\x1b[".as_bytes()), [Unassigned; 3], "a key that was cut is none");
        assert_eq!(keys_of(b""), []);
    }

    #[test]
    fn a_terminal_that_is_gone_is_an_error_and_one_without_a_key_is_none() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let keyboard = Keyboard(near.into());
        assert_eq!(keyboard.pressed(Duration::ZERO).expect("it is there"), []);
        io::Write::write_all(&mut far, b"sr").expect("sent");
        assert_eq!(keyboard.pressed(Duration::from_secs(600)).expect("it is there"), [Sign('s'), Sign('r')]);
        drop(far);
        let gone = keyboard.pressed(Duration::from_secs(600)).expect_err("it is gone");
        assert_eq!(gone.kind(), ErrorKind::UnexpectedEof);
    }
}

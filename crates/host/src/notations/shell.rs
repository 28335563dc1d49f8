//! Paths as people read them: words of a shell's command line, and text that cannot act on a
//! terminal.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `path` as one word of a command, quoted only where a shell needs it.
pub fn word(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().as_os_str();
    match path.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(is_plain) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => quoted(text),
        _ => escaped(path),
    }
}

/// `text` as one word of a command.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `path` as one word of a command, with the bytes that a terminal would not show as numbers.
fn escaped(path: &OsStr) -> String {
    let mut word = "$'".to_owned();
    for chunk in path.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => word.extend(['\\', character]),
                _ if character.is_control() => {
                    character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| octal(&mut word, byte))
                }
                _ => word.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut word, *byte));
    }
    word.push('\'');
    word
}

fn octal(word: &mut String, byte: u8) {
    // A string takes everything.
    let _ = write!(word, "\\{byte:03o}");
}

/// Characters that no shell takes for more than themselves.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&byte)
}

/// `text` without characters that act on a terminal, but for the ends of lines that `ends` leaves
/// in.
pub fn shown(text: &str, ends: Ends) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' if ends == Ends::OfLines => shown.push(character),
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

/// What an end of line in a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The end of a line.
    OfLines,
    /// A character like others: the text is one line.
    OfNothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_every_path_back() {
        for bytes in
            [&b"/dev/shm/v.pmem"[..], b"/a b", b"/it's", b"", b"~/$HOME;`ls`", b"/a\nb\x1b[31m'\\", b"/\xff\xc3\xa4"]
        {
            let path = Path::new(OsStr::from_bytes(bytes));
            let script = format!("printf %s {}", word(path));
            let said = Command::new("bash").args(["-c", &script]).output().expect("bash");
            assert_eq!(said.stdout, bytes, "{script}");
            assert!(!script.contains(char::is_control), "{script:?}");
        }
        assert_eq!((word("/a/b.c-1"), word("/a b")), ("/a/b.c-1".to_owned(), "'/a b'".to_owned()));
    }

    #[test]
    fn nothing_that_is_shown_acts_on_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\u{9b}\nb ä", Ends::OfLines), "a\\u{1b}[2J\\u{9b}\nb ä");
        assert_eq!(shown("a\nb", Ends::OfNothing), "a\\nb");
    }
}

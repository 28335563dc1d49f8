//! Regular files that people name, read whole: configuration, certificates, secrets.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Opens a regular file for reading. Nothing is waited for.
///
/// # Errors
/// It cannot be opened, or is of another kind (`InvalidInput`): a pipe or a device may keep the
/// reader waiting, or never end. Devices are not opened at all, as some act when they are.
pub fn open(path: &Path) -> io::Result<File> {
    accept(&path.metadata()?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    // Another one may have come in its place.
    accept(&file.metadata()?)?;
    Ok(file)
}

fn accept(about: &Metadata) -> io::Result<()> {
    match about.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// The bytes of a regular file that has at most `bytes_max` of them.
///
/// # Errors
/// It cannot be opened or read, or has more bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_a_length_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, pipe] = ["file", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&file, b"four").expect("a file");
        assert_eq!(read(&file, 4).expect("as long as it may be"), b"four");
        assert_eq!(read(&file, 3).expect_err("too long").kind(), ErrorKind::FileTooLarge);
        // Without a writer the opening of a pipe would wait.
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        for other in [&*pipe, folder.path(), Path::new("/dev/zero")] {
            assert_eq!(read(other, 4).expect_err("of another kind").kind(), ErrorKind::InvalidInput, "{other:?}");
        }
    }
}

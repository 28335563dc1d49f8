//! Files as they were, contents and extended attributes, to be put back in place: the same inodes.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What some files hold.
#[derive(Debug)]
pub struct Snapshot {
    files: Vec<(PathBuf, Saved)>,
}

#[derive(Debug)]
struct Saved {
    bytes: Vec<u8>,
    attributes: BTreeMap<OsString, Vec<u8>>,
}

impl Snapshot {
    /// Reads these files, which have to be there.
    pub fn of(files: &[PathBuf]) -> Snapshot {
        let kept = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.clone(), Saved { bytes, attributes: attributes(path) })
        };
        Snapshot { files: files.iter().map(kept).collect() }
    }

    /// Makes the files what they were. One that is gone is made anew. Bytes that are still right
    /// are not written.
    pub fn put_back(&self) {
        for (path, kept) in &self.files {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
            let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            file.set_len(kept.bytes.len() as u64).expect("the file gets its size");
            put_back_bytes(&file, &kept.bytes);
            for name in attributes(path).keys().filter(|name| !kept.attributes.contains_key(*name)) {
                rustix::fs::removexattr(path, c_name(name)).expect("an attribute can be removed");
            }
            for (name, value) in &kept.attributes {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(path, c_name(name), value, flags).expect("an attribute can be set");
            }
        }
    }
}

fn put_back_bytes(file: &File, bytes: &[u8]) {
    let mut now = vec![0; 1 << 16];
    for (at, piece) in (0..).step_by(now.len()).zip(bytes.chunks(1 << 16)) {
        let now = &mut now[..piece.len()];
        file.read_exact_at(now, at).expect("the file can be read");
        if now != piece {
            file.write_all_at(piece, at).expect("the file can be written");
        }
    }
}

fn c_name(name: &OsString) -> CString {
    CString::new(name.as_bytes()).expect("names of attributes have no zero byte")
}

/// The extended attributes of users that the file has.
fn attributes(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::listxattr(path, &mut names[..]).expect("attributes can be listed");
    let names = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 1 << 16];
        let name = OsString::from_vec(name.to_vec());
        let len = rustix::fs::getxattr(path, c_name(&name), &mut value[..]).expect("an attribute can be read");
        value.truncate(len);
        (name, value)
    };
    names.map(value).collect()
}

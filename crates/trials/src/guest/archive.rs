//! The guest's first file system: a cpio archive of the kind `newc`, written here so that no cpio
//! is needed.
//!
//! The kernel unpacks several archives laid end to end, later files over earlier ones: a base that
//! never changes, then the files of one run.

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive under construction.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// An empty folder. Its parents have to be there already.
    pub(super) fn folder(&mut self, path: &str) -> &mut Archive {
        self.entry(path, FOLDER, &[]);
        self
    }

    /// A file that may be read and run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> &mut Archive {
        self.entry(path, PROGRAM, content);
        self
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("a guest's files are small");
        let name = u32::try_from(path.len() + 1).expect("a path is short");
        let links = 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name length,
        // check
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

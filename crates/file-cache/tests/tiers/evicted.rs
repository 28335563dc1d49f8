//! Reads of a file whose clean entries make room for other files meanwhile.

use crate::InMemory;
use crate::clean::{pool_of, start};
use std::sync::{Arc, OnceLock};
use tidegate_file_cache::{BackingFile, BackingStatus, Fallocate, FileIdentity, Persistence, Refused, Sought};

const PAGE: usize = 4096;

/// A file below, during each read of which something happens.
struct Interrupted {
    file: InMemory,
    meanwhile: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl BackingFile for Interrupted {
    fn identity(&self) -> FileIdentity {
        self.file.identity()
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        self.file.status()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        if let Some(meanwhile) = self.meanwhile.get() {
            meanwhile();
        }
        self.file.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        self.file.write(at, data)
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.file.set_len(len)
    }

    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused> {
        self.file.fallocate(at, len, how)
    }

    fn seek(&self, at: u64, sought: Sought) -> Result<Option<u64>, Refused> {
        self.file.seek(at, sought)
    }

    fn sync(&self) -> Result<(), Refused> {
        self.file.sync()
    }
}

/// Each look at the file below takes so long that another file's syncs take clean entries of the
/// file that is read.
#[test]
fn a_read_during_which_clean_entries_are_given_up_is_whole() {
    let pool = Arc::new(start(&pool_of(12 << 20, 8)));
    let own = Arc::new(Interrupted { file: InMemory::new(1, &[5; PAGE]), meanwhile: OnceLock::new() });
    let below: Arc<dyn BackingFile> = own.clone();
    let id = pool.open_file(&below, b"a file").expect("opened");
    // The pool is full of clean entries of the file; its first page is below only.
    let mut page = 0;
    while pool.clean_bytes() == page * PAGE as u64 {
        page += 1;
        pool.write(id, 2 * page * PAGE as u64, &[6; PAGE], Persistence::Synchronous).expect("written");
        while pool.write_back_step(0, u64::MAX).expect("written back").bytes > 0 {}
    }
    assert_eq!(pool.counters().below, 0);
    let other: Arc<dyn BackingFile> = Arc::new(InMemory::new(2, &[]));
    let other = pool.open_file(&other, b"another").expect("opened");
    let (writer, clean) = (Arc::downgrade(&pool), pool.clean_bytes());
    let meanwhile = move || {
        if let Some(pool) = writer.upgrade() {
            let end = pool.size(other).expect("it is open");
            for page in 1..40 {
                let at = end + page * 2 * PAGE as u64;
                pool.write(other, at, &[7; PAGE], Persistence::Synchronous).expect("written");
            }
        }
    };
    assert!(own.meanwhile.set(Box::new(meanwhile)).is_ok());
    let mut out = vec![0xcc; PAGE];
    assert_eq!(pool.read(id, 0, &mut out), Ok(PAGE));
    assert!(out == [5; PAGE]);
    assert!(pool.clean_bytes() < clean, "some were given up");
}

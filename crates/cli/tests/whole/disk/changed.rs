//! Disks that somebody wrote to without their region.

use super::{BLOCK, Pair, read, stamped, write};
use crate::program::run;
use std::fs::File;
use std::os::unix::fs::FileExt;

#[test]
fn a_disk_that_was_written_without_its_region_is_not_read_from_the_region() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 1, 1);
    assert_eq!(server.stop().code(), Some(0));
    let flushed = run(&["flush", "--pmem", &pair.pmem]);
    assert!(
        flushed.code == 0 && flushed.stdout.contains("must not be written without its region"),
        "{}",
        flushed.stdout
    );
    File::options().write(true).open(&pair.disk).unwrap().write_all_at(&stamped(1, 2), BLOCK).unwrap();
    // A server that only reads tells the truth too, and leaves the region as it is.
    for more in [&["--read-only"][..], &[]] {
        let mut server = pair.serve(more);
        server.hear_or_heard("was changed without");
        let mut client = pair.client();
        assert_eq!(read(&mut client, 1), stamped(1, 2), "{more:?}");
        drop(client);
        assert_eq!(server.stop().code(), Some(0));
    }
    let mut server = pair.serve(&[]);
    assert_eq!(read(&mut pair.client(), 1), stamped(1, 2));
    assert_eq!(server.stop().code(), Some(0));
    assert!(!server.said.contains("was changed without"), "{}", server.said);
}

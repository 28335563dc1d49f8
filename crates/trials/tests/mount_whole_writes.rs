//! How many requests the kernel makes of one write to a file of a mount: what is one request is
//! whole after a power loss (`crashcheck` enumerates the cuts), and what is several is not.
//!
//! The kernel copies the pages of a write without O_DIRECT one by one. If a page of the program's
//! memory is not there, it ends the request amid a page of the file, unless the two pages begin
//! together. This prints a table, and holds the kernel to the rows that the guide promises.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_trials::artefacts::run;
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::programs::PAGES;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of a write.
const SIZES: [u64; 7] = [8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB];

/// Writes from memory that another thread takes away meanwhile.
const RACES: u64 = 2000;

/// A way to write: the call, where the memory is, and how far behind the beginning of a page.
type Way = (&'static str, &'static str, u64);

/// Ways by which each write is one request, up to so many bytes.
const WHOLE: [(Way, u64); 10] = [
    (("pwrite", "present", 0), MIB),
    (("pwrite", "present", 128), MIB),
    (("pwrite", "absent", 0), MIB),
    (("pwrite", "userfault", 0), MIB),
    (("pwritev", "present", 0), MIB),
    (("pwritev", "userfault", 0), MIB),
    (("direct", "present", 0), MIB),
    // It has a part of one page more than a request takes.
    (("direct", "present", 128), 256 * KIB),
    (("direct", "userfault", 0), MIB),
    (("direct", "userfault", 128), 256 * KIB),
];

/// Ways by which no number of requests is promised.
const DIVIDED: [Way; 2] = [("pwrite", "absent", 128), ("pwrite", "userfault", 128)];

struct Counted {
    testbed: MountTestbed,
    program: PathBuf,
    /// Requests of a run without those of its writes.
    others: u64,
}

impl Counted {
    fn new() -> Counted {
        let testbed = MountTestbed::new();
        fs::write(testbed.source().join("file"), vec![1; usize::try_from(MIB).unwrap()]).unwrap();
        let program = PAGES.build().unwrap();
        let mut counted = Counted { testbed, program, others: 0 };
        // The first run finds nothing known of the file.
        counted.requests(("pwrite", "present", 0), 4 * KIB, 1);
        counted.others = counted.requests(("pwrite", "present", 0), 4 * KIB, 1) - 1;
        counted
    }

    /// Requests until now. The kernel closes a file after its program ended: it is waited for.
    fn all_requests(&self) -> u64 {
        loop {
            let status = self.testbed.status();
            if status["files"]["open"].as_u64().unwrap() == 0 {
                return status["requests"].as_u64().unwrap();
            }
        }
    }

    /// Requests of so many writes.
    fn requests(&self, (call, memory, offset): Way, size: u64, times: u64) -> u64 {
        let before = self.all_requests();
        let mut program = Command::new(&self.program);
        program.arg(self.file()).args([call, &size.to_string(), memory]).args([offset, times].map(|n| n.to_string()));
        run(&mut program, "gcc").unwrap();
        self.all_requests() - before - self.others
    }

    fn file(&self) -> PathBuf {
        Path::join(&self.testbed.mountpoint(), "file")
    }

    /// A row of the table.
    fn row(&self, way: Way) -> Vec<u64> {
        let (call, memory, offset) = way;
        let row: Vec<u64> = SIZES.iter().map(|size| self.requests(way, *size, 1)).collect();
        let shown: Vec<String> = row.iter().map(|requests| format!("{requests:>7}")).collect();
        println!("{call:<8} {memory:<10} {offset:>6} {}", shown.join(""));
        row
    }
}

#[test]
fn a_write_is_one_request_where_the_guide_says_so() {
    let counted = Counted::new();
    let sizes: Vec<String> = SIZES.iter().map(|size| format!("{:>7}", size / KIB)).collect();
    println!("requests of one write\ncall     memory     offset {} KiB", sizes.join(""));
    for (way, whole_up_to) in WHOLE {
        let row = counted.row(way);
        for (size, requests) in SIZES.iter().zip(row).filter(|(size, _)| **size <= whole_up_to) {
            assert_eq!(requests, 1, "{way:?}, {size} bytes");
        }
    }
    for way in DIVIDED {
        counted.row(way);
    }
    // A page that is taken away while the kernel copies it ends the request there: seldom, and by
    // chance, so that this is shown and not judged.
    for size in [8 * KIB, 16 * KIB] {
        let requests = counted.requests(("pwrite", "dropped", 0), size, RACES);
        println!("{RACES} writes of {size} bytes from memory that is taken away meanwhile: {requests} requests");
    }
}

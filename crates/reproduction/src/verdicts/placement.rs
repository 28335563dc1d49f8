//! The rows of the papers about placement, UHNVM's and Cheetah's, which are judged by replays.

use super::PaperRow;
use super::sheet::Sheet;
use crate::hybrid::DIRECT;
use crate::placement::programs::{EXT4, PUBLISHED, XFS, places};
use crate::placement::redis::CACHES;

const UHNVM: &str = "UHNVM";
const NO_NVM: &str = "no NVM";
const RANDOM: &str = "random placement";

/// Every row.
pub(super) const ROWS: &[PaperRow] = &[
    PaperRow {
        name: "uhnvm-8",
        paper: "UHNVM, Fig. 8, 9",
        shows: "dd: 11 % less time than without NVM, most hits; random placement is the slowest",
        experiments: &["placement-dd"],
        judged_on: "UHNVM",
        cause: "the loop is an eleventh of the reads, so that no more than that is to be had; the paper tells neither the file's size nor the disk",
        claims: fig_8,
    },
    PaperRow {
        name: "uhnvm-10",
        paper: "UHNVM, Fig. 10",
        shows: "requests of 8 KiB have 7.2 times the throughput of 1 KiB (reads), 4.05 times (writes)",
        experiments: &["placement-units"],
        judged_on: "UHNVM",
        cause: "the paper's requests cost more beside a block than the 0.86 µs here; where each block is written to a new place, twice as large writes gain little",
        claims: fig_10,
    },
    PaperRow {
        name: "uhnvm-11",
        paper: "UHNVM, Fig. 11, 12",
        shows: "time is least with three tenths of NVM; the hits of writes still rise past it",
        experiments: &["placement-proportions"],
        judged_on: "UHNVM",
        cause: "the loop, three tenths of the requests, hits as a whole once it fits NVM, at three tenths; from there on DRAM only loses room for the random data: 95.0, 86.5 and 77.5 % \
                hit at 0.3, 0.4 and 0.5. The paper names the same reason for its time, more moving between DRAM and the disk, and its hits rise all the same",
        claims: fig_11,
    },
    PaperRow {
        name: "uhnvm-13",
        paper: "UHNVM, Fig. 13",
        shows: "more hits than LRU, CFLRU and I/O-Cache at each size of the cache",
        experiments: &["placement-sizes"],
        judged_on: "UHNVM",
        cause: "the mix of patterns is not told",
        claims: fig_13,
    },
    PaperRow {
        name: "cheetah-3",
        paper: "Cheetah, Fig. 3",
        shows: "synchronous writes: 2.1 times Ext4 and XFS, 1.9 times NOVA, with 32 GB of DRAM",
        experiments: &["placement-programs"],
        judged_on: "Cheetah, direct path",
        cause: "all writes are synchronous, and none enters DRAM by the design's own rule (§ 3.1): one of 4 KiB takes 7.96 µs with 2, 4, 8, 16 and 32 GiB of DRAM; the paper tells \
                numbers for 32 GiB alone, and no reason for others; a sync of a file system on a block device here commits its journal, and the kernel has neither NOVA nor memory for DAX",
        claims: cheetah_3,
    },
    PaperRow {
        name: "cheetah-4",
        paper: "Cheetah, Fig. 4",
        shows: "Redis with a log always synced: 1.5 to 2.8 times Ext4-DAX, the more the larger the cache; 2.9 times Ext4, 4.2 times XFS",
        experiments: &["placement-redis"],
        judged_on: "direct path",
        cause: "the memories: the pool and both block devices are DRAM, and the paper's are Optane, with a sixth of its write bandwidth; with the log in /dev/shm, where a sync does nothing, \
                Redis has 2.0 times Ext4's SETs and 1.7 times XFS's, so that no cache reaches the paper's ratios; the kernel has no memory for DAX, and no NOVA",
        claims: cheetah_4,
    },
];

fn fig_8(sheet: &mut Sheet<'_>) {
    sheet.at("uhnvm-fig-8", "dd").ratio(UHNVM, NO_NVM, 0.89).least(UHNVM, &[RANDOM]).least(NO_NVM, &[RANDOM]);
    sheet.at("uhnvm-fig-9", "dd").least(NO_NVM, &[UHNVM]).least(RANDOM, &[UHNVM]);
}

fn fig_10(sheet: &mut Sheet<'_>) {
    for (figure, what, paper) in [("uhnvm-fig-10a", "reads", 7.2), ("uhnvm-fig-10b", "writes", 4.05)] {
        let here = sheet.value(figure, UHNVM, "8 KiB over 1 KiB");
        sheet.ratio(format!("{what} of 8 KiB ÷ of 1 KiB"), here, paper);
    }
}

fn fig_11(sheet: &mut Sheet<'_>) {
    for (time, what) in [("uhnvm-fig-11a", "pread"), ("uhnvm-fig-11b", "pwrite")] {
        let best = sheet.value(time, UHNVM, "0.3");
        for share in ["0.1", "0.2", "0.4", "0.5"] {
            let other = sheet.value(time, UHNVM, share);
            sheet.less(format!("{what}: time at 0.3 < at {share}"), best, other);
        }
    }
    // The text tells of Fig. 12b that hits rise, and nothing of Fig. 12a.
    let [at, past] = ["0.3", "0.5"].map(|share| sheet.value("uhnvm-fig-12b", UHNVM, share));
    sheet.less("pwrite: hits at 0.3 < at 0.5", at, past);
}

fn fig_13(sheet: &mut Sheet<'_>) {
    for place in sheet.places_or("uhnvm-fig-13", UHNVM, &["1"]) {
        let mut place = sheet.at("uhnvm-fig-13", place);
        for rival in ["LRU", "CFLRU", "I/O-Cache"] {
            place = place.least(rival, &[UHNVM]);
        }
    }
}

fn cheetah_3(sheet: &mut Sheet<'_>) {
    for (place, other) in places().iter().flat_map(|place| [EXT4, XFS].map(|other| (place, other))) {
        sheet.at("cheetah-fig-3-files", place).ratio(DIRECT, other, PUBLISHED);
    }
    for other in ["NOVA", "XFS-DAX"] {
        sheet.not_run(format!("throughput ÷ {other}'s"));
    }
    sheet.not_run("throughput with 2 to 16 GB of DRAM, which the text does not tell");
}

/// Where the paper says "by 51 %, 1.2 × and 1.8 ×", it means so much more. It tells means over the
/// sizes of values.
fn cheetah_4(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "cheetah-fig-4";
    let [small, medium, large] = CACHES;
    for (other, more) in [(EXT4, 1.9), (XFS, 3.2)] {
        let here = sheet.mean_quotient(FIGURE, large, other);
        sheet.ratio(format!("{large} ÷ {other}, mean"), here, 1.0 + more);
    }
    for (more, less, paper) in [(medium, small, 2.2 / 1.51), (large, medium, 2.8 / 2.2)] {
        let here = sheet.mean_quotient(FIGURE, more, less);
        sheet.ratio(format!("{more} ÷ {less}, mean"), here, paper);
    }
    for other in ["Ext4-DAX", "XFS-DAX", "NOVA"] {
        sheet.not_run(format!("SETs a second ÷ {other}'s"));
    }
}

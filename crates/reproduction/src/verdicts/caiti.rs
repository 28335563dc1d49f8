//! The rows of the transit cache's paper.
//!
//! They are judged on its platform in virtual time, by the figures with one fitted number; Fig. 5a
//! by those with three, whose bars are inputs there. Of programs on a file system (Fig. 8 to 10)
//! the requests are recorded on the machine that runs them, and asked again on that platform.

use super::PaperRow;
use super::sheet::{Sheet, quotient};
use crate::caiti::platform::inside::WAY_BACK;

const STAGING: [&str; 4] = ["PMBD", "PMBD-70", "LRU", "COA"];
const OTHERS: [&str; 8] = ["PMem", "DAX", "NOVA", "BTT", "PMBD", "PMBD-70", "LRU", "COA"];

/// Every row.
pub(super) const ROWS: &[PaperRow] = &[
    PaperRow {
        name: "caiti-2a",
        paper: "Caiti, Fig. 2a",
        shows: "staging makes a random write slower than the block translation table alone, with fsyncs too",
        experiments: &["platform-staging-cost"],
        judged_on: "PMBD, LRU",
        cause: "the translation table here fences twice a block, and Linux's has the memory flushed four times",
        claims: fig_2a,
    },
    PaperRow {
        name: "caiti-2b",
        paper: "Caiti, Fig. 2b",
        shows: "the time of a flush rises with what was written under staging, and stays low under transit",
        experiments: &["platform-flush"],
        judged_on: "Caiti",
        cause: "Caiti's flush ends as soon as its drainers have caught up; with fewer of them it would grow",
        claims: fig_2b,
    },
    PaperRow {
        name: "caiti-3",
        paper: "Caiti, Fig. 2c-e, 3, 5b, 5c",
        shows: "staging has continual response times over 20 µs, transit has hardly any",
        experiments: &["platform-windows"],
        judged_on: "Caiti",
        cause: "a virtual machine without interrupts has no other spikes than those of the caches",
        claims: fig_3,
    },
    PaperRow {
        name: "caiti-5a",
        paper: "Caiti, Fig. 5a",
        shows: "at a depth of 128 every other way takes 2.2 to 4.1 times Caiti's time",
        experiments: &["platform-reasons"],
        judged_on: "Caiti",
        cause: "three bars are inputs; PMBD-70 takes 9.0 µs and COA 10.8: a block takes the device 11.8 µs, and two threads write there, PMBD-70's syncer in one buffer and \
                its writer in another, as in PMBD's source; in the paper they gain nothing over PMBD's one (16.5 and 16.4 µs), by a lock of a list that it does not describe",
        claims: fig_5a,
    },
    PaperRow {
        name: "caiti-5d",
        paper: "Caiti, Fig. 5d",
        shows: "at a depth of 1024 PMBD's 99.99th percentile is 14 times Caiti's",
        experiments: &["platform-depth"],
        judged_on: "Caiti",
        cause: "PMBD's tail is the flush of a buffer by one writer, so it depends on the buffer's size over the depth",
        claims: fig_5d,
    },
    PaperRow {
        name: "caiti-5e",
        paper: "Caiti, Fig. 5e",
        shows: "Caiti is ahead of all others whatever the number of jobs",
        experiments: &["platform-jobs"],
        judged_on: "Caiti",
        cause: "with many jobs the medium is the limit of all",
        claims: fig_5e,
    },
    PaperRow {
        name: "caiti-table-1",
        paper: "Caiti, Table 1",
        shows: "the time of a request does not depend on the size of the cache, and is least for Caiti",
        experiments: &["platform-capacity"],
        judged_on: "Caiti",
        cause: "Caiti's own work takes 0.1 µs here and 2 µs in the paper, and the medium's speed is fitted to Fig. 5a",
        claims: table_1,
    },
    PaperRow {
        name: "caiti-metadata",
        paper: "Caiti, § 5.1",
        shows: "102 bytes of metadata a slot for Caiti and COA, 84 for PMBD and LRU",
        experiments: &["metadata"],
        judged_on: "Caiti",
        cause: "26 bytes here: a block's number and a version of 8 bytes each, a link of 8, and a share of the sets; of the paper's 102 a kernel's lock is 40 and its item of work 33, \
                which are bits of the version here, and a queue for each set; without these two the paper's are 29",
        claims: metadata,
    },
    PaperRow {
        name: "caiti-6",
        paper: "Caiti, Fig. 6",
        shows: "writers wait for evictions 25 to 41 % of the time under staging, and never under transit",
        experiments: &["platform-inside"],
        judged_on: "Caiti",
        cause: "a stall waits for the translation table, so its share follows that table's cost: from told costs to fitted ones it grows past the paper's",
        claims: fig_6,
    },
    PaperRow {
        name: "caiti-7",
        paper: "Caiti, Fig. 7",
        shows: "54 % of a write's time pass before it reaches Caiti",
        experiments: &["platform-timeline"],
        judged_on: "Caiti",
        cause: "the software's time is the literature's, and how it is divided between the way there and the way back was measured on another machine; \
                Caiti's own work takes 0.1 µs here",
        claims: fig_7,
    },
    PaperRow {
        name: "caiti-8",
        paper: "Caiti, Fig. 8",
        shows: "LevelDB fills and overwrites with 2 KiB values in 18 to 49 % less time than on the others",
        experiments: &["platform-programs"],
        judged_on: "Caiti",
        cause: "the pauses between a program's requests are alike on every bar, and have in them what a loop device and nbdfuse take on this machine: beside a load of about 5, 15.9 µs for a fill on \
                Caiti and 24.3 on BTT. What COA cleans in pauses is clean when a table is synced: 22.5 µs there; DAX and NOVA are no block devices",
        claims: fig_8,
    },
    PaperRow {
        name: "caiti-9",
        paper: "Caiti, Fig. 9",
        shows: "YCSB's load is 40 to 66 % faster on Caiti than on caches that stage",
        experiments: &["platform-programs"],
        judged_on: "Caiti",
        cause: "the pauses between a program's requests are alike on every bar, and have in them what a loop device and nbdfuse take on this machine. In them COA and PMBD-70 clean: beside a \
                load of about 5 they have 108,400 and 105,600 operations of the load a second, LRU, which does not, 97,200, and Caiti 128,600",
        claims: fig_9,
    },
    PaperRow {
        name: "caiti-10",
        paper: "Caiti, Fig. 10",
        shows: "Filebench's fileserver and varmail take up to 62 % less time on Caiti than on the others",
        experiments: &["platform-programs"],
        judged_on: "Caiti",
        cause: "fileserver sends the device no request: nobody syncs its 25 MiB of files, and each is deleted before the page cache writes it back, so that every bar is 12.7 µs. The paper's guest has \
                Filebench's own files, fifty times as many. Of varmail's 165 µs on Caiti most are pauses, with a loop device and nbdfuse in them, in which COA cleans too: 171 µs there, and 185 on BTT",
        claims: fig_10,
    },
];

fn fig_2a(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-fig-2a-fitted";
    sheet
        .at(FIGURE, "no flush")
        .ratio("BTT", "PMem", 1.374)
        .ratio("BTT", "DAX", 1.166)
        .ratio("PMBD", "BTT", 1.06)
        .ratio("LRU", "BTT", 1.151)
        .least("PMBD", &["LRU"]);
    sheet.at(FIGURE, "flush every 128").ratio("PMBD", "BTT", 1.061).ratio("LRU", "BTT", 1.108);
}

fn fig_2b(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-fig-2b-fitted";
    // 64 times as much was written.
    let (low, high) = ("512 KiB", "32 MiB");
    for label in ["PMBD", "LRU"] {
        let [first, last] = [low, high].map(|place| sheet.value(FIGURE, label, place));
        sheet.below(format!("{label}: a flush after {low} ÷ one after {high}"), quotient(first, last), 1.0 / 16.0);
    }
    sheet.at(FIGURE, high).least("Caiti", &["PMBD", "LRU"]);
}

fn fig_3(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-fig-2c-e-5b-fitted";
    /// Microseconds of a spike, in the paper's words.
    const SPIKE_US: f64 = 20.0;
    let spikes = |sheet: &Sheet<'_>, label: &str| {
        let slowest = sheet.values(FIGURE, label)?;
        let slow = slowest.iter().filter(|time| **time > SPIKE_US).count();
        Some(100.0 * slow as f64 / slowest.len() as f64)
    };
    for label in ["PMBD", "LRU"] {
        let (caiti, staging) = (spikes(sheet, "Caiti"), spikes(sheet, label));
        sheet.less(format!("windows with a request over 20 µs: Caiti < {label}"), caiti, staging);
    }
    let caiti = spikes(sheet, "Caiti");
    sheet.below("% of Caiti's windows with a request over 20 µs < 1", caiti, 1.0);
}

fn fig_5a(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-reasons";
    let mut place = sheet.at(FIGURE, "and BTT");
    let published = [
        ("PMem", 2.202),
        ("BTT", 3.6),
        ("DAX", 2.157),
        ("NOVA", 4.1),
        ("PMBD", 3.6),
        ("PMBD-70", 3.6),
        ("LRU", 3.5),
        ("COA", 2.9),
    ];
    for (label, paper) in published {
        place = place.ratio(label, "Caiti", paper);
    }
    place.least("COA", &["LRU", "BTT", "PMBD", "PMBD-70", "NOVA"]).least("LRU", &["NOVA"]).least("DAX", &["COA"]);
}

fn fig_5d(sheet: &mut Sheet<'_>) {
    sheet.at("platform-fig-5d-fitted", "1024").ratio("PMBD", "Caiti", 14.0);
}

fn fig_5e(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-fig-5e-fitted";
    for place in sheet.places_or(FIGURE, "Caiti", &["1", "4"]) {
        sheet.at(FIGURE, place).least("Caiti", &OTHERS);
    }
}

fn table_1(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-table-1-fitted";
    let mut place = sheet.at(FIGURE, "64 MiB");
    for (label, us) in STAGING.into_iter().zip([16.5, 16.6, 16.7, 12.7]) {
        place = place.ratio(label, "Caiti", us / 4.4);
    }
    let sizes = sheet.values(FIGURE, "Caiti").filter(|times| times.len() > 1);
    let end = |pick: fn(f64, f64) -> f64| sizes.as_ref().and_then(|times| times.iter().copied().reduce(pick));
    let spread = quotient(end(f64::max), end(f64::min));
    sheet.below("Caiti: greatest time over the least, by the size of the cache < 1.1", spread, 1.1);
}

fn metadata(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "metadata";
    for (label, bytes) in [("Caiti", 102.0), ("PMBD", 84.0), ("LRU", 84.0), ("COA", 102.0)] {
        let here = sheet.value(FIGURE, label, "bytes");
        sheet.quantity(format!("bytes a slot: {label}"), here, bytes);
    }
    sheet.at(FIGURE, "bytes").least("PMBD", &["Caiti", "COA"]).least("LRU", &["Caiti", "COA"]);
}

fn fig_6(sheet: &mut Sheet<'_>) {
    const FIGURE: &str = "platform-stalls";
    const PLACE: &str = "streaming fitted";
    for (label, share) in STAGING.into_iter().zip([40.5, 25.3, 40.0, 32.7]) {
        let here = sheet.value(FIGURE, label, PLACE);
        sheet.percentage(format!("% of the time in stalls: {label}"), here, share);
    }
    // Its waits for a slot that another thread evicts are not told apart from looking for one.
    sheet.not_run("% of the time in stalls: Caiti");
    sheet.at(FIGURE, PLACE).least("PMBD-70", &["COA", "LRU", "PMBD"]).least("COA", &["LRU", "PMBD"]);
    let flushes = |label: &str| sheet.value("platform-fig-6a-fitted", crate::figure::BESIDE, label);
    let here = quotient(flushes("COA"), flushes("LRU"));
    sheet.ratio("time of the journal's flushes: COA ÷ LRU", here, 1.9);
}

fn fig_7(sheet: &mut Sheet<'_>) {
    let spent = |label: &str| Some(sheet.values("platform-fig-7-caiti-fitted", label)?.iter().sum::<f64>());
    let (before, after) = (spent("software above"), spent(WAY_BACK));
    let inside = spent("cache write").map(|written| written + spent("enqueue").unwrap_or(0.0));
    let outside = before.zip(after).map(|(before, after)| before + after);
    let share = before.zip(inside.zip(outside)).map(|(before, (inside, outside))| 100.0 * before / (inside + outside));
    sheet.less("time in Caiti < time before it", inside, before);
    sheet.percentage("% of a write's time before it reaches Caiti", share, 54.0);
}

fn fig_8(sheet: &mut Sheet<'_>) {
    let less =
        [("DAX", 41.9), ("NOVA", 46.2), ("BTT", 40.6), ("PMBD", 20.0), ("PMBD-70", 17.8), ("LRU", 19.6), ("COA", 48.8)];
    let mut place = sheet.at("platform-fig-8a-fitted", "2048 B");
    for (label, less) in less {
        place = place.ratio("Caiti", label, 1.0 - less / 100.0);
    }
    sheet.at("platform-fig-8b-fitted", "2048 B").ratio("Caiti", "BTT", 1.0 - 0.382);
}

fn fig_9(sheet: &mut Sheet<'_>) {
    let mut place = sheet.at("platform-fig-9c-fitted", "load");
    for (label, more) in STAGING.into_iter().zip([65.8, 40.0, 66.3, 51.8]) {
        place = place.ratio("Caiti", label, 1.0 + more / 100.0);
    }
}

fn fig_10(sheet: &mut Sheet<'_>) {
    let mut place = sheet.at("platform-fig-10a-fitted", "fileserver");
    for (label, less) in ["DAX", "PMem", "NOVA", "BTT"].into_iter().zip([12.0, 13.3, 62.0, 43.9]) {
        place = place.ratio("Caiti", label, 1.0 - less / 100.0);
    }
    for (label, less) in STAGING.into_iter().zip([52.4, 48.6, 53.1, 43.2]) {
        place = place.ratio("Caiti", label, 1.0 - less / 100.0);
    }
    let mut place = sheet.at("platform-fig-10a-fitted", "varmail");
    for (label, less) in ["NOVA", "BTT"].into_iter().chain(STAGING).zip([21.7, 22.4, 26.8, 31.8, 8.2, 30.9]) {
        place = place.ratio("Caiti", label, 1.0 - less / 100.0);
    }
}

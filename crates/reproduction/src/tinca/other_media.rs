//! TPC-C on other disks and other memories.

use super::super::Scale;
use super::super::figure::{Chart, Figure};
use super::disks::Make;
use super::mix::{self, Taken};
use super::testbed::{Kind, Setup};
use super::{busy_points, frame, orders, point, series, tpc_c};

/// Users where the paper varies something else.
const USERS: u32 = 20;

/// Fig. 12.
pub fn other_media(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let rate = "transactions per minute";
    let mut of_disks = frame("fig-12a", "Fig. 12a", "TPC-C on other disks, 20 users", Chart::Bars, rate);
    let title = "What those disks are busy with for each transaction";
    let mut busy = frame("fig-12a-disk", "beyond the paper", title, Chart::Bars, "ns per transaction");
    let mut of_memories = frame("fig-12b", "Fig. 12b", "TPC-C on other memories, 20 users", Chart::Bars, rate);
    let mut hits =
        frame("fig-12c", "Fig. 12c", "TPC-C: writes that find their block cached", Chart::Bars, "% of writes");
    for kind in Kind::WHOLE {
        let with = |setup: Setup| mix::run(kind, &setup, orders(scale, USERS));
        let on = |platform| with(Setup { platform, ..tpc_c(scale) });
        let usual = with(tpc_c(scale))?;
        let bar =
            |(place, taken, ratio): (&str, Taken, f64)| point(place, taken.per_second() * 60.0, kind.published(ratio));
        let disks = [("SSD", usual, 1.7), ("HDD", with(Setup { disk: Make::Hdd, ..tpc_c(scale) })?, 2.8)];
        let memories = [("PCM", usual, 1.7), ("STT-RAM", on("e5-stt-ram")?, 1.6), ("NVDIMM", on("e5-nvdimm")?, 1.6)];
        let share = 100.0 * usual.done.write_hits as f64 / usual.done.writes as f64;
        of_disks.series.push(series(kind.label(), disks.map(bar).to_vec()));
        let parts = disks.map(|(place, taken, _)| busy_points(place, taken.spent, taken.count));
        busy.series.push(series(kind.label(), parts.concat()));
        of_memories.series.push(series(kind.label(), memories.map(bar).to_vec()));
        hits.series.push(series(kind.label(), vec![point("SSD, PCM", share, kind.published(93.0 / 80.0))]));
    }
    for figure in [&mut of_disks, &mut busy, &mut of_memories] {
        figure.notes = vec![
            "Six virtual cores of a Xeon E5. The cache, its journal and the pages are a 16th of the paper's. Nothing is fitted."
                .to_owned(),
            "TPC-C as in Fig. 8, without MySQL: what is left are the cache's and the disk's times.".to_owned(),
        ];
    }
    of_disks.notes.push(
        "The hard disk is modelled by its data sheet: the data lie at the beginning of 4 TB, a random access takes about 5 ms, its cache takes writes \
         until 1,024 blocks wait."
            .to_owned(),
    );
    hits.notes.push(
        "Classic's log blocks count as writes of its cache: the log is written round and round, and found cached."
            .to_owned(),
    );
    Ok(vec![of_disks, busy, of_memories, hits])
}

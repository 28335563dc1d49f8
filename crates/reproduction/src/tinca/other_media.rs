//! TPC-C on other disks and other memories.

use super::super::Scale;
use super::super::figure::{Chart, Figure};
use super::disks::Make;
use super::mix;
use super::testbed::{Kind, Setup};
use super::{TPC_C, frame, orders, point, series};

/// Users where the paper varies something else.
const USERS: u32 = 20;

/// Fig. 12.
pub fn other_media(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let disks = [("SSD", Setup { disk: Make::Ssd, ..TPC_C }, 1.7), ("HDD", Setup { disk: Make::Hdd, ..TPC_C }, 2.8)];
    let memories = [
        ("PCM", Setup { platform: "e5-pcm", ..TPC_C }, 1.7),
        ("STT-RAM", Setup { platform: "e5-stt-ram", ..TPC_C }, 1.6),
        ("NVDIMM", Setup { platform: "e5-nvdimm", ..TPC_C }, 1.6),
    ];
    let rate = "transactions per minute";
    let mut of_disks = frame("fig-12a", "Fig. 12a", "TPC-C on other disks, 20 users", Chart::Bars, rate);
    let mut of_memories = frame("fig-12b", "Fig. 12b", "TPC-C on other memories, 20 users", Chart::Bars, rate);
    let mut hits =
        frame("fig-12c", "Fig. 12c", "TPC-C: writes that find their block cached", Chart::Bars, "% of writes");
    for kind in Kind::ON_OTHER_MEDIA {
        let mut points = Vec::new();
        for (place, setup, ratio) in disks {
            let taken = mix::run(kind, &setup, orders(scale, USERS))?;
            points.push(point(place, taken.per_second() * 60.0, kind.published(ratio)));
            if setup == TPC_C {
                let share = 100.0 * taken.done.write_hits as f64 / taken.done.writes as f64;
                hits.series.push(series(kind.label(), vec![point("SSD, PCM", share, kind.published(93.0 / 80.0))]));
            }
        }
        of_disks.series.push(series(kind.label(), std::mem::take(&mut points)));
        for (place, setup, ratio) in memories {
            let taken = mix::run(kind, &setup, orders(scale, USERS))?;
            points.push(point(place, taken.per_second() * 60.0, kind.published(ratio)));
        }
        of_memories.series.push(series(kind.label(), points));
    }
    for figure in [&mut of_disks, &mut of_memories] {
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
    Ok(vec![of_disks, of_memories, hits])
}

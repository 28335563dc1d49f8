//! The platforms by name, with where each number comes from.
//!
//! [`REFERENCE`] was measured by `bench calibrate`; the others take from it what their source does
//! not tell: what cores and the kernel cost. Latencies that a source gives as the whole time of an
//! access count from the core's issuing it.

use super::{Act, CoreCosts, Disk, Figure, Memory, Profile};
use std::borrow::Cow;

/// The name of the platform that was measured: two cores of a virtual Intel Xeon, DRAM.
pub const REFERENCE: &str = "reference";

/// Every name that [`Profile::by_name`] knows.
pub const PROFILES: [&str; 6] = [REFERENCE, "xeon-optane", "e5-nvdimm", "e5-stt-ram", "e5-pcm", "spr-cxl"];

/// Every name that [`disk_by_name`] knows.
pub const DISKS: [&str; 3] = ["sata-ssd", "hdd", "nvme"];

/// No platform or disk has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no costs are known of {name:?}; choose one of {}", known.join(", "))]
pub struct UnknownProfile {
    name: String,
    known: &'static [&'static str],
}

const MEASURED: &str =
    "bench calibrate, median of 31 on two cores of a virtual Intel Xeon, Linux 6.18, memory in large pages";
const IZRAELEVITZ: &str = "Izraelevitz and others, arXiv 1903.05714";
const YANG: &str = "Yang and others, FAST 2020";
const TINCA: &str = "Wei and others, Tinca, TPDS 2018";
const HYBRID: &str = "thesis on hybrid storage of NVMe and CXL memory";

const fn measured(ps: u64) -> Figure {
    Figure { ps, source: Cow::Borrowed(MEASURED) }
}

fn told(ps: u64, source: &str, how: &str) -> Figure {
    Figure { ps, source: format!("{source}: {how}").into() }
}

pub(super) fn by_name(name: &str) -> Result<Profile, UnknownProfile> {
    Ok(match name {
        REFERENCE => reference(),
        "xeon-optane" => xeon_optane(),
        "e5-nvdimm" => e5("e5-nvdimm", 0, 0),
        "e5-stt-ram" => e5("e5-stt-ram", 50, 50),
        "e5-pcm" => e5("e5-pcm", 180, 50),
        "spr-cxl" => spr_cxl(),
        _ => return Err(UnknownProfile { name: name.to_owned(), known: &PROFILES }),
    })
}

fn reference() -> Profile {
    let dram = Memory {
        fetch: measured(231_056),
        fetch_next: measured(2_954),
        arrival: measured(177_833),
        write_back: measured(112_067),
        write_line: measured(1_412),
        read_line: measured(1_816),
        line_bytes: 64,
        ahead_lines: 64,
    };
    Profile { name: REFERENCE.into(), cores: 2, processor: processor(), memory: dram.clone(), dram }
}

const fn processor() -> CoreCosts {
    // In the order of `Act::ALL`.
    let figures = [
        measured(2_703),
        measured(534),
        measured(822),
        measured(2_341),
        measured(9_974),
        measured(3_006),
        measured(368),
        measured(9_652),
        measured(66_365),
        measured(24_774_420),
        measured(216_196),
        measured(695_703),
        measured(99_493),
    ];
    assert!(figures.len() == Act::ALL.len());
    CoreCosts { figures, cached_lines: (2 << 20) / 64, flush_keeps: true }
}

/// The machine of the transit cache's paper: 36 cores of Xeon Gold 6240, and the figures of six
/// interleaved Optane DIMMs.
fn xeon_optane() -> Profile {
    let optane = Memory {
        fetch: told(305_000, IZRAELEVITZ, "a random load"),
        fetch_next: told(9_700, IZRAELEVITZ, "one core's following lines, at 6.6 GB/s"),
        arrival: told(90_000, YANG, "a streamed store and its fence"),
        write_back: told(62_000, YANG, "a store, its flush and fence"),
        write_line: told(18_400, IZRAELEVITZ, "256 bytes at the 13.9 GB/s of six DIMMs"),
        read_line: told(6_500, IZRAELEVITZ, "256 bytes at the 39.4 GB/s of six DIMMs"),
        line_bytes: 256,
        ahead_lines: 64,
    };
    let dram = Memory {
        fetch: told(101_000, YANG, "a random load"),
        arrival: told(86_000, YANG, "a streamed store and its fence"),
        write_back: told(57_000, YANG, "a store, its flush and fence"),
        ..reference().dram
    };
    let mut processor = processor();
    processor.cached_lines = (1 << 20) / 64;
    Profile { name: "xeon-optane".into(), cores: 36, processor, memory: optane, dram }
}

/// One Xeon E5-2640 with an NVDIMM, whose every line is made slower. It has no flush but `clflush`,
/// which drops the line.
fn e5(name: &'static str, write_ns: u64, read_ns: u64) -> Profile {
    let more = |ns: u64, what: &str| format!("DRAM's, {ns} ns more for each line {what}");
    let dram = Memory { fetch: told(60_000, TINCA, "DRAM's read latency"), ..reference().dram };
    let write = |base: &Figure| Figure {
        ps: base.ps + write_ns * 1000,
        source: format!("{}; {TINCA}: {}", base.source, more(write_ns, "written")).into(),
    };
    let read = |base: &Figure| Figure {
        ps: base.ps + read_ns * 1000,
        source: format!("{}; {TINCA}: {}", base.source, more(read_ns, "read")).into(),
    };
    let memory = Memory {
        fetch: read(&dram.fetch),
        fetch_next: read(&dram.fetch_next),
        // The delay is a core's own, so that no core waits for another's.
        ..dram.clone()
    };
    let mut processor = processor();
    for act in [Act::StreamLine, Act::FlushLine] {
        let figure = &mut processor.figures[act as usize];
        *figure = write(figure);
    }
    processor.cached_lines = (256 << 10) / 64;
    processor.flush_keeps = false;
    Profile { name: name.into(), cores: 6, processor, memory, dram }
}

/// A Xeon Silver 4416+ with DRAM behind CXL.
fn spr_cxl() -> Profile {
    let cxl = Memory {
        fetch: told(350_000, HYBRID, "the latency of a load"),
        fetch_next: told(4_300, HYBRID, "one thread's 14 GiB/s"),
        arrival: told(350_000, HYBRID, "taken as that of a load: the same way there and back"),
        write_back: told(350_000, HYBRID, "taken as that of a load: the same way there and back"),
        write_line: told(2_640, HYBRID, "64 bytes at 22.6 GiB/s"),
        read_line: told(2_640, HYBRID, "64 bytes at 22.6 GiB/s"),
        line_bytes: 64,
        ahead_lines: 64,
    };
    let dram = Memory { fetch: told(105_000, HYBRID, "the latency of local DRAM"), ..reference().dram };
    Profile { name: "spr-cxl".into(), cores: 20, processor: processor(), memory: cxl, dram }
}

/// The disk of this name.
pub fn disk_by_name(name: &str) -> Result<Disk, UnknownProfile> {
    const S4600: &str = "Intel SSD DC S4600, product specification";
    const ULTRASTAR: &str = "HGST Ultrastar 7K4000, specification";
    const CONSTELLATION: &str = "Seagate Constellation ES.3, product manual";
    let far = || told(12_360_000_000, ULTRASTAR, "an average seek of 8.2 ms, and half a turn at 7,200 rpm, 4.16 ms");
    Ok(match name {
        "sata-ssd" => Disk {
            name: "sata-ssd".into(),
            read: told(110_000_000, S4600, "a random read"),
            write: told(52_000_000, S4600, "a random write"),
            flush: told(52_000_000, S4600, "taken as a write's: its cache is safe from power loss"),
            transfer_4k: told(8_190_000, S4600, "500 MB/s"),
        },
        "hdd" => Disk {
            name: "hdd".into(),
            read: far(),
            write: told(0, CONSTELLATION, "its cache takes it: the transfer alone"),
            flush: far(),
            transfer_4k: told(31_800_000, CONSTELLATION, "the middle of 83 to 175 MB/s"),
        },
        "nvme" => Disk {
            name: "nvme".into(),
            read: told(10_000_000, HYBRID, "over 10 µs for an access"),
            write: told(10_000_000, HYBRID, "over 10 µs for an access"),
            flush: told(10_000_000, HYBRID, "over 10 µs for an access"),
            transfer_4k: told(1_530_000, HYBRID, "2.5 GiB/s when saturated"),
        },
        _ => return Err(UnknownProfile { name: name.to_owned(), known: &DISKS }),
    })
}

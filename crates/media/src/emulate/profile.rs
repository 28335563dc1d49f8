//! The media that can be emulated, by name, with where their numbers come from.
//!
//! All times are those that the medium takes *more* than DRAM, in nanoseconds.

use std::fmt;

/// Time for a run of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// For its first line, in nanoseconds.
    pub first_ns: u64,
    /// For each line that follows, in nanoseconds.
    pub next_ns: u64,
}

impl Delay {
    /// No time at all.
    pub const NONE: Delay = Delay { first_ns: 0, next_ns: 0 };

    /// One delay for every line.
    pub const fn each(ns: u64) -> Delay {
        Delay { first_ns: ns, next_ns: ns }
    }

    /// Nanoseconds for a run of `lines`.
    pub const fn of_lines(self, lines: u64) -> u64 {
        match lines {
            0 => 0,
            lines => self.first_ns + self.next_ns * (lines - 1),
        }
    }
}

/// The times of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Bytes that it reads and writes together; a power of two, 64 or more.
    pub line_bytes: u64,
    /// Time of each read.
    pub read: Delay,
    /// Time of each flush or stream, waited for at the fence.
    pub write: Delay,
    /// Bytes written per second by all threads together, whole lines counted; None: no limit.
    pub write_bytes_per_second: Option<u64>,
}

/// Battery-backed DRAM: nothing is added.
const NVDIMM: Profile =
    Profile { name: "nvdimm", line_bytes: 64, read: Delay::NONE, write: Delay::NONE, write_bytes_per_second: None };

/// Spin-transfer-torque RAM. The delays that Wei and others add per line to an NVDIMM for Tinca
/// (TPDS 2018; +50/+50).
const STT_RAM: Profile = Profile { name: "stt-ram", read: Delay::each(50), write: Delay::each(50), ..NVDIMM };

/// Phase-change memory. The delays of the same work (+50 read, +180 write).
const PCM: Profile = Profile { name: "pcm", read: Delay::each(50), write: Delay::each(180), ..NVDIMM };

/// One Optane DIMM (Izraelevitz and others, arXiv 1903.05714; Yang and others, FAST 2020): lines of
/// 256 bytes; a random load takes 305 ns where DRAM takes 81, and following lines come at 6.6 GB/s;
/// a flushed store takes no longer than one to DRAM (it ends at the controller), but all writes
/// share 2.3 GB/s.
const OPTANE: Profile = Profile {
    name: "optane",
    line_bytes: 256,
    read: Delay { first_ns: 224, next_ns: 39 },
    write: Delay { first_ns: 5, next_ns: 0 },
    write_bytes_per_second: Some(2_300_000_000),
};

/// DRAM behind CXL: about 350 ns a load, 3.3 times as long as local DRAM's, and 22.6 GiB/s
/// (measured for the hybrid storage that joins NVMe and CXL memory). A flush makes the same way,
/// once for all lines that travel together.
const CXL: Profile = Profile {
    name: "cxl",
    line_bytes: 64,
    read: Delay { first_ns: 245, next_ns: 0 },
    write: Delay { first_ns: 245, next_ns: 0 },
    write_bytes_per_second: Some(24_267_000_000),
};

impl Profile {
    const ALL: [Profile; 5] = [NVDIMM, STT_RAM, PCM, OPTANE, CXL];

    /// The names that [`Profile::by_name`] knows.
    pub const NAMES: [&'static str; 5] = [NVDIMM.name, STT_RAM.name, PCM.name, OPTANE.name, CXL.name];

    /// The profile of this name.
    pub fn by_name(name: &str) -> Result<Profile, UnknownProfile> {
        let found = Profile::ALL.into_iter().find(|profile| profile.name == name);
        found.ok_or_else(|| UnknownProfile { name: name.to_owned() })
    }

    /// Lines that `at..at + len` touches.
    pub(super) fn lines(&self, at: u64, len: u64) -> u64 {
        if len == 0 { 0 } else { (at + len - 1) / self.line_bytes - at / self.line_bytes + 1 }
    }

    /// How long writing `lines` keeps the medium busy, in nanoseconds, rounded up.
    pub(super) fn transfer_ns(&self, lines: u64) -> u64 {
        self.write_bytes_per_second.map_or(0, |rate| (lines * self.line_bytes * 1_000_000_000).div_ceil(rate))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl std::str::FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        Profile::by_name(name)
    }
}

/// No medium of this name can be emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no emulated medium is called {name:?}; choose one of {}", Profile::NAMES.join(", "))]
pub struct UnknownProfile {
    /// The name asked for.
    pub name: String,
}

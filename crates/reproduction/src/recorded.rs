//! What programs ask of a device: recorded while they run, and asked again of other devices.
//!
//! A record is a text with a line for each request: when it came and when it was done, in
//! nanoseconds of the machine's clock, what was asked, the first block, and how many there are.

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Result};

/// Nanoseconds of a clock that all processes of this machine share.
pub fn clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let time = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What a device is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To read blocks.
    Read(LbaRange),
    /// To write blocks.
    Write(LbaRange),
    /// To make durable what was written.
    Flush,
}

/// A request as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it came.
    pub begin_ns: u64,
    /// When it was done.
    pub end_ns: u64,
    /// What it was.
    pub asked: Asked,
}

/// When a program did a part of its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Which part.
    pub workload: String,
    /// Its operations.
    pub operations: u64,
    /// Its first moment and its last one, by [`clock_ns`].
    pub ns: (u64, u64),
}

impl Request {
    fn line(&self) -> String {
        let (letter, range) = match self.asked {
            Asked::Read(range) => ('r', range),
            Asked::Write(range) => ('w', range),
            Asked::Flush => ('f', LbaRange { first: Lba(0), blocks: 0 }),
        };
        format!("{} {} {letter} {} {}\n", self.begin_ns, self.end_ns, range.first.0, range.blocks)
    }

    fn of_line(line: &str) -> Option<Request> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[begin, end, letter, first, blocks] = &words[..] else { return None };
        let number = |word: &str| word.parse::<u64>().ok();
        let range = LbaRange { first: Lba(number(first)?), blocks: number(blocks)? };
        let asked = match letter {
            "r" => Asked::Read(range),
            "w" => Asked::Write(range),
            "f" => Asked::Flush,
            _ => return None,
        };
        Some(Request { begin_ns: number(begin)?, end_ns: number(end)?, asked })
    }
}

/// The requests recorded in `file`, in the order in which they came.
pub fn requests_in(file: &Path) -> anyhow::Result<Vec<Request>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let request = |line| Request::of_line(line).with_context(|| format!("{line:?} is no request"));
    let mut requests = text.lines().map(request).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!requests.is_empty(), "{} has no requests", file.display());
    requests.sort_by_key(|request| request.begin_ns);
    Ok(requests)
}

/// A device whose requests are recorded.
pub struct Recorder {
    device: Arc<dyn BlockDevice>,
    file: Mutex<File>,
}

impl Recorder {
    /// Records what `device` is asked in a new file at `path`.
    pub fn over(device: Arc<dyn BlockDevice>, path: &Path) -> anyhow::Result<Recorder> {
        let file = File::create_new(path).with_context(|| format!("create {}", path.display()))?;
        Ok(Recorder { device, file: Mutex::new(file) })
    }

    /// Each line is written at once: the process that records may be killed at any time.
    fn recorded(&self, asked: Asked, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let begin_ns = clock_ns();
        act()?;
        let line = Request { begin_ns, end_ns: clock_ns(), asked }.line();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).expect("the record takes another line");
        Ok(())
    }

    fn range(&self, first: Lba, bytes: usize) -> LbaRange {
        LbaRange { first, blocks: bytes as u64 / u64::from(self.geometry().block_size) }
    }

    fn written(&self, range: LbaRange, durability: Durability, act: impl FnOnce() -> Result<()>) -> Result<()> {
        self.recorded(Asked::Write(range), act)?;
        match durability {
            Durability::Fua => self.recorded(Asked::Flush, || Ok(())),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for Recorder {
    tidegate_media::forward!(self => self.device; geometry, discard, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.recorded(Asked::Read(self.range(at, out.len())), || self.device.read(at, out))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.written(self.range(at, data.len()), durability, || self.device.write(at, data, durability))
    }

    fn flush(&self) -> Result<()> {
        self.recorded(Asked::Flush, || self.device.flush())
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.written(range, durability, || self.device.write_zeroes(range, durability))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use tidegate_baselines::raw::RawPmem;
    use tidegate_media::MappedRegion;

    #[test]
    fn requests_are_recorded_in_the_order_in_which_they_came() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        let device = RawPmem::new(MappedRegion::anonymous(64 * 4096).unwrap(), 4096).unwrap();
        let recorder = Recorder::over(Arc::new(device), &path).unwrap();
        let mut block = [1; 8192];
        recorder.write(Lba(3), &block, Durability::Fua).unwrap();
        recorder.read(Lba(4), &mut block[..4096]).unwrap();
        recorder.flush().unwrap();
        let requests = requests_in(&path).unwrap();
        let range = |first, blocks| LbaRange { first: Lba(first), blocks };
        let asked: Vec<Asked> = requests.iter().map(|request| request.asked).collect();
        assert_eq!(asked, [Asked::Write(range(3, 2)), Asked::Flush, Asked::Read(range(4, 1)), Asked::Flush]);
        assert!(requests.windows(2).all(|pair| pair[0].end_ns <= pair[1].begin_ns));
        assert!(requests.iter().all(|request| Request::of_line(request.line().trim_end()) == Some(*request)));
        assert!(Recorder::over(recorder.device, &path).is_err(), "another record is there");
        std::fs::write(&path, "1 2 x 3 4\n").unwrap();
        assert!(requests_in(&path).unwrap_err().to_string().contains("no request"));
    }
}

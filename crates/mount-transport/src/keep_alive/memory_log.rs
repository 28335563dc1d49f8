//! A log of records in memory that the process which keeps the mount alive holds, so that they
//! survive the server.
//!
//! The memory has two areas, of which one counts. A server appends records to it; a fresh snapshot
//! goes to the other one, which counts from then on. A server that is killed at any instruction
//! leaves one of these:
//!
//! | killed | the next server finds |
//! | --- | --- |
//! | while it appends a record | all records before it: the torn one fails its checksum |
//! | while it writes a snapshot | the area from before |
//! | after the word that says which area counts | the snapshot |
//!
//! An area is emptied before a snapshot goes there, so nothing of an earlier use follows the last
//! record.
//!
//! Records are stored through a mapping of the memory.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate};
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use tidegate_media::OutlivingWindow;

/// Where the areas begin. The first page has the word that says which one counts.
const AREAS: [u64; 2] = [4096, AREA_BYTES];
/// Most bytes of an area; the memory takes room for what is written only.
const AREA_BYTES: u64 = 1 << 40;
/// A record's length and checksum, before it.
const FRAME_BYTES: usize = 8;
/// Longest record.
const LOGGED_BYTES_MAX: usize = 4096;
/// Shortest log for which a snapshot is worth its time.
const SNAPSHOT_AT_BYTES: u64 = 1 << 20;

/// The log.
pub struct MemoryLog {
    memory: File,
    window: OutlivingWindow,
    /// The area that counts.
    area: usize,
    /// Where the next record goes.
    end: u64,
    /// Where the snapshot ended.
    snapshot_end: u64,
    /// Whether a record could not be stored: then nothing after it counts.
    is_broken: bool,
}

impl MemoryLog {
    /// Makes memory without records.
    pub fn memory(name: &str) -> Result<OwnedFd, rustix::io::Errno> {
        rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
    }

    /// Opens the log, and calls `each` with the records that earlier servers left. An error of
    /// `each` ends that: the record is not one of this version's.
    pub fn open(memory: OwnedFd, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<MemoryLog> {
        let memory = File::from(memory);
        let mut word = [0];
        let area = match memory.read_at(&mut word, 0)? {
            1 if word[0] == BROKEN => return Err(io::Error::other("a record could not be stored")),
            1 => usize::from(word[0] & 1),
            _ => 0,
        };
        let mut reader = BufReader::with_capacity(1 << 20, &memory);
        reader.seek(SeekFrom::Start(AREAS[area]))?;
        let mut end = AREAS[area];
        let mut record = [0; LOGGED_BYTES_MAX];
        while let Some(record) = read_record(&mut reader, &mut record)? {
            each(record)?;
            end += (FRAME_BYTES + record.len()) as u64;
        }
        Ok(MemoryLog {
            memory,
            window: OutlivingWindow::default(),
            area,
            end,
            snapshot_end: AREAS[area],
            is_broken: false,
        })
    }

    /// Appends a record. If that fails, no later server takes the log for whole.
    pub fn append(&mut self, record: &[u8]) {
        if let Err(error) = self.try_append(record) {
            self.give_up(&error);
        }
    }

    fn try_append(&mut self, record: &[u8]) -> io::Result<()> {
        if self.is_broken {
            return Ok(());
        }
        let framed = framed(record)?;
        self.window.store(self.memory.as_fd(), self.end, &framed)?;
        self.end += framed.len() as u64;
        Ok(())
    }

    /// Whether the log is long enough, compared with its last snapshot, for a fresh one.
    pub fn is_long(&self) -> bool {
        let snapshot = self.snapshot_end - AREAS[self.area];
        self.end - self.snapshot_end > snapshot.max(SNAPSHOT_AT_BYTES)
    }

    /// Puts these records in the place of all others.
    pub fn replace<'r>(&mut self, records: impl IntoIterator<Item = std::borrow::Cow<'r, [u8]>>) {
        if let Err(error) = self.try_replace(records) {
            self.give_up(&error);
        }
    }

    fn try_replace<'r>(&mut self, records: impl IntoIterator<Item = std::borrow::Cow<'r, [u8]>>) -> io::Result<()> {
        if self.is_broken {
            return Ok(());
        }
        let (former, area) = (self.area, 1 - self.area);
        self.window = OutlivingWindow::default();
        self.empty(area)?;
        let (mut at, mut waiting) = (AREAS[area], Vec::new());
        for record in records {
            waiting.extend(framed(&record)?);
            if waiting.len() >= 1 << 16 {
                self.memory.write_all_at(&waiting, at)?;
                at += waiting.len() as u64;
                waiting.clear();
            }
        }
        self.memory.write_all_at(&waiting, at)?;
        at += waiting.len() as u64;
        self.memory.write_all_at(&[u8::try_from(area).unwrap_or(0)], 0)?;
        (self.area, self.end, self.snapshot_end) = (area, at, at);
        self.empty(former)
    }

    fn empty(&self, area: usize) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.memory, hole, AREAS[area], AREA_BYTES - AREAS[0])?)
    }

    fn give_up(&mut self, error: &io::Error) {
        self.is_broken = true;
        tracing::error!("the memory with the mount's nodes failed: {error}; the mount does not survive this server");
        // Without the word, the next server fails at the first request for an unknown node.
        let _ = self.memory.write_all_at(&[BROKEN], 0);
    }
}

/// The word of a log in which a record is missing.
const BROKEN: u8 = 0xff;

/// A record behind its length and checksum.
fn framed(record: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(record.len()).ok().filter(|_| (1..=LOGGED_BYTES_MAX).contains(&record.len()));
    let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut framed = Vec::with_capacity(FRAME_BYTES + record.len());
    framed.extend(len.to_le_bytes());
    framed.extend(crc32c::crc32c(record).to_le_bytes());
    framed.extend(record);
    Ok(framed)
}

/// The next record; None: there is no further one.
fn read_record<'r>(reader: &mut impl io::Read, record: &'r mut [u8]) -> io::Result<Option<&'r [u8]>> {
    let mut head = Vec::with_capacity(FRAME_BYTES);
    reader.by_ref().take(FRAME_BYTES as u64).read_to_end(&mut head)?;
    let Some((len, rest)) = head.split_first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
    if len == 0 || len > record.len() {
        return Ok(None);
    }
    match reader.read_exact(&mut record[..len]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let record = &record[..len];
    Ok((rest == crc32c::crc32c(record).to_le_bytes()).then_some(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn opened(memory: &OwnedFd) -> (MemoryLog, Vec<Vec<u8>>) {
        let mut left = Vec::new();
        let memory = memory.try_clone().expect("a second descriptor");
        let log = MemoryLog::open(memory, |record| {
            left.push(record.to_vec());
            Ok(())
        });
        (log.expect("readable"), left)
    }

    fn fresh() -> OwnedFd {
        MemoryLog::memory("test").expect("memory")
    }

    #[test]
    fn the_next_server_finds_what_was_appended_and_appends_behind_it() {
        let memory = fresh();
        let (mut log, left) = opened(&memory);
        assert_eq!(left, Vec::<Vec<u8>>::new());
        log.append(b"one");
        log.append(b"two");
        let (mut log, left) = opened(&memory);
        assert_eq!(left, [b"one".to_vec(), b"two".to_vec()]);
        log.append(b"three");
        assert_eq!(opened(&memory).1.len(), 3);
    }

    #[test]
    fn a_record_that_a_kill_tore_ends_the_log_wherever_it_was_torn() {
        let whole = {
            let memory = fresh();
            let (mut log, _) = opened(&memory);
            log.append(b"first");
            log.append(b"the second one");
            memory
        };
        let second = AREAS[0] + (FRAME_BYTES + 5) as u64;
        let file = File::from(whole.try_clone().expect("a second descriptor"));
        let mut bytes = [0; FRAME_BYTES + 14];
        file.read_exact_at(&mut bytes, second).expect("there");
        for kept in 0..bytes.len() {
            let mut torn = bytes;
            torn[kept..].fill(0);
            file.write_all_at(&torn, second).expect("room");
            assert_eq!(opened(&whole).1, [b"first".to_vec()], "{kept} bytes");
        }
    }

    #[test]
    fn a_snapshot_counts_when_its_word_is_written_and_not_before() {
        let memory = fresh();
        let (mut log, _) = opened(&memory);
        (0..100_u32).for_each(|number| log.append(&number.to_le_bytes()));
        let file = File::from(memory.try_clone().expect("a second descriptor"));
        let snapshot = |log: &mut MemoryLog, text: &'static [u8]| log.replace([Cow::Borrowed(text)]);
        snapshot(&mut log, b"snapshot");
        assert_eq!(opened(&memory).1, [b"snapshot".to_vec()]);
        // A second one that was written, but for the word.
        log.append(b"after");
        let word = [1];
        snapshot(&mut log, b"another");
        assert_eq!(opened(&memory).1, [b"another".to_vec()]);
        file.write_all_at(&word, 0).expect("room");
        assert_eq!(opened(&memory).1, Vec::<Vec<u8>>::new(), "what is replaced is emptied");
    }

    #[test]
    fn a_log_is_long_when_it_is_twice_its_snapshot() {
        let memory = fresh();
        let (mut log, _) = opened(&memory);
        let record = [7; 1000];
        (0..1100).for_each(|_| log.append(&record));
        assert!(log.is_long());
        log.replace((0..2200).map(|_| Cow::Borrowed(&record[..])));
        (0..1100).for_each(|_| log.append(&record));
        assert!(!log.is_long());
        assert_eq!(opened(&memory).1.len(), 3300);
    }

    #[test]
    fn a_log_that_could_not_be_written_is_refused_by_the_next_server() {
        let memory = fresh();
        let (mut log, _) = opened(&memory);
        log.append(&[0; LOGGED_BYTES_MAX + 1]);
        log.append(b"later");
        let reopened = MemoryLog::open(memory.try_clone().expect("a second descriptor"), |_| Ok(()));
        assert!(reopened.is_err());
    }
}

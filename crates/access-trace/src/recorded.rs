//! What programs recorded, and the trace that it is.

use crate::text::Trace;
use anyhow::{Context, ensure};
use std::collections::HashMap;
use tidegate_file_wire::{AccessKind, AccessRecord, CHUNK_RECORDS};
use tidegate_policy::placement::{IoKind, IoRequest};
use zerocopy::FromBytes;

const RECORD_BYTES: usize = size_of::<AccessRecord>();

/// A file that was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    /// Its number in the trace.
    pub number: u64,
    /// Its inode.
    pub inode: u64,
}

/// Records of programs, as a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The requests, in the order of time.
    pub trace: Trace,
    /// The files, in the order of their numbers.
    pub files: Vec<RecordedFile>,
}

impl Recorded {
    /// Reads records that several processes have stored, each to chunks of its own. A write
    /// that a later sync of its file makes durable is a synchronous one.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Recorded> {
        let whole = bytes.len() / RECORD_BYTES * RECORD_BYTES;
        ensure!(whole == bytes.len(), "the last record is cut short: it has {} bytes", bytes.len() - whole);
        let mut records: Vec<AccessRecord> = bytes.chunks(CHUNK_RECORDS * RECORD_BYTES).flat_map(filled).collect();
        records.sort_by_key(|record| record.at_ns.get());
        let began_ns = records.first().map_or(0, |first| first.at_ns.get());
        let mut recorded = Recorded::default();
        let mut known: HashMap<[u64; 2], KnownFile> = HashMap::new();
        for (place, record) in records.iter().enumerate() {
            let kind = AccessKind::of(record.kind.get());
            let kind = kind.with_context(|| format!("record {place} is of the kind {}", record.kind.get()))?;
            let file = known.entry([record.device.get(), record.inode.get()]);
            let file = file.or_insert_with(|| recorded.begin(record.inode.get()));
            recorded.take(file, (record, kind), began_ns);
        }
        Ok(recorded)
    }

    fn begin(&mut self, inode: u64) -> KnownFile {
        let number = self.files.len() as u64 + 1;
        self.files.push(RecordedFile { number, inode });
        KnownFile { number, unsynced: Vec::new() }
    }

    fn take(&mut self, file: &mut KnownFile, (record, kind): (&AccessRecord, AccessKind), began_ns: u64) {
        let requests = &mut self.trace.requests;
        let kind = match kind {
            AccessKind::Sync => {
                file.unsynced.drain(..).for_each(|write| requests[write].kind = IoKind::SyncWrite);
                return;
            }
            AccessKind::Read => IoKind::Read,
            AccessKind::SyncWrite => IoKind::SyncWrite,
            AccessKind::Write => IoKind::Write,
        };
        let (offset, bytes) = (record.offset.get(), record.bytes.get());
        if bytes == 0 || offset.checked_add(bytes.into()).is_none() {
            return;
        }
        if kind == IoKind::Write {
            file.unsynced.push(requests.len());
        }
        let now_ms = (record.at_ns.get() - began_ns) / 1_000_000;
        requests.push(IoRequest { file: file.number, offset, bytes, kind, context: record.context.get(), now_ms });
    }
}

/// The records of a chunk, which a process filled from its beginning on.
fn filled(chunk: &[u8]) -> impl Iterator<Item = AccessRecord> {
    let read = |record: &[u8]| AccessRecord::read_from_bytes(record).expect("it has the length of one");
    chunk.chunks_exact(RECORD_BYTES).map(read).take_while(|record| record.kind.get() != 0)
}

/// A file, while records are read.
struct KnownFile {
    number: u64,
    /// Places of its writes that no sync followed yet.
    unsynced: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn record(at_ms: u64, inode: u64, offset: u64, kind: AccessKind) -> AccessRecord {
        AccessRecord {
            at_ns: (7_000_000_000 + at_ms * 1_000_000).into(),
            context: 0xab.into(),
            device: 3.into(),
            inode: inode.into(),
            offset: offset.into(),
            bytes: if kind == AccessKind::Sync { 0 } else { 100 }.into(),
            kind: kind.word().into(),
        }
    }

    #[test]
    fn records_of_several_processes_become_one_trace_and_a_sync_makes_writes_synchronous() {
        let mut records = vec![
            record(5, 70, 0, AccessKind::Write),
            record(9, 70, 0, AccessKind::Sync),
            record(10, 70, 200, AccessKind::Write),
        ];
        // The rest of the first process' chunk is empty but for what a kill left of a record.
        records.resize(CHUNK_RECORDS, AccessRecord::new_zeroed());
        records[3].at_ns = 1.into();
        records.extend([
            record(0, 80, 4096, AccessKind::Read),
            record(6, 80, 0, AccessKind::Write),
            record(7, 80, 0, AccessKind::SyncWrite),
        ]);
        let recorded = Recorded::parse(records.as_bytes()).expect("they are records");
        let text =
            "tidegate-trace 1\n0 ab 1 4096 100 r\n5 ab 2 0 100 s\n6 ab 1 0 100 w\n7 ab 1 0 100 s\n10 ab 2 200 100 w\n";
        assert_eq!(recorded.trace.text(), text);
        let files = [(1, 80), (2, 70)].map(|(number, inode)| RecordedFile { number, inode });
        assert_eq!(recorded.files, files);
        assert_eq!(Recorded::parse(&[]).expect("a program that reads nothing"), Recorded::default());
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let whole = record(0, 1, 0, AccessKind::Read);
        let cut = Recorded::parse(&whole.as_bytes()[..47]).expect_err("a byte is missing");
        assert!(cut.to_string().contains("cut short: it has 47 bytes"), "{cut}");
        let strange = AccessRecord { kind: 9.into(), ..whole };
        let error = Recorded::parse(strange.as_bytes()).expect_err("there is no such kind");
        assert!(error.to_string().contains("record 0 is of the kind 9"), "{error}");
    }
}

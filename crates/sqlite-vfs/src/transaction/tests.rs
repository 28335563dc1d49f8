//! Transactions against a model of SQLite's pager, with kills and errors at every operation.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;

const PAGE: usize = 16;
const PAGES: usize = 12;
const CAMPAIGN_SEEDS: u64 = 400;

/// What a kill leaves: the database, and the journal if that is a file.
#[derive(Clone, Debug, Default)]
struct Left {
    file: Vec<u8>,
    journal: Option<Vec<u8>>,
}

/// Files in memory that note what each kill would leave, and fail when the seed says so.
#[derive(Default)]
struct Disk {
    now: Left,
    kills: Vec<Left>,
    random: u64,
    /// One of so many operations fails; 0: none.
    fails_one_of: u64,
    groups: usize,
}

impl Disk {
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn step(&mut self) -> Result<(), Code> {
        self.kills.push(self.now.clone());
        let fails = self.fails_one_of > 0 && self.draw(self.fails_one_of) == 0;
        if fails { Err(if self.draw(2) == 0 { FULL } else { IOERR_WRITE }) } else { Ok(()) }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let from = usize::try_from(at).unwrap();
        self.now.file.resize(self.now.file.len().max(from + data.len()), 0);
        self.now.file[from..from + data.len()].copy_from_slice(data);
        self.kills.push(self.now.clone());
    }
}

impl Storage for Disk {
    fn len(&mut self) -> Result<u64, Code> {
        Ok(self.now.file.len() as u64)
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), Code> {
        let from = usize::try_from(at).unwrap().min(self.now.file.len());
        let present = (self.now.file.len() - from).min(buffer.len());
        buffer.fill(0);
        buffer[..present].copy_from_slice(&self.now.file[from..from + present]);
        Ok(())
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Code> {
        let half = data.len() / 2;
        self.put(at, &data[..half]);
        self.step()?;
        self.put(at + half as u64, &data[half..]);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<(), Code> {
        self.step()?;
        self.now.file.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn write_group(&mut self, writes: &[GroupWrite<'_>]) -> Result<(), Code> {
        self.step()?;
        let kills = self.kills.len();
        writes.iter().for_each(|run| self.put(run.at, run.data));
        // Nobody sees a part of a group.
        self.kills.truncate(kills);
        self.groups += 1;
        // An answer may be lost.
        self.step()
    }

    fn keep_journal(&mut self, journal: &[u8]) -> Result<(), Code> {
        assert!(self.now.journal.is_none(), "there was one");
        self.step()?;
        self.now.journal = Some(journal.to_vec());
        Ok(())
    }
}

/// What the next opener sees: it rolls a journal back. A journal is the number of pages before, and
/// then pages with their numbers.
fn recovered(left: &Left) -> Vec<u8> {
    let mut file = left.file.clone();
    let Some((pages, records)) = left.journal.as_ref().and_then(|journal| journal.split_first()) else { return file };
    for record in records.chunks_exact(PAGE + 1) {
        let at = usize::from(record[0]) * PAGE;
        file.resize(file.len().max(at + PAGE), 0);
        file[at..at + PAGE].copy_from_slice(&record[1..]);
    }
    file.resize(usize::from(*pages) * PAGE, 0);
    file
}

/// A writer as SQLite is: old pages go to the journal first.
struct Writer {
    transaction: MountTransaction,
    disk: Disk,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let file = (0..4 * PAGE).map(|at| u8::try_from(at).unwrap()).collect();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let disk = Disk { now: Left { file, journal: None }, random, ..Disk::default() };
        Writer { transaction: MountTransaction::default(), disk }
    }

    fn append(&mut self, data: &[u8]) -> Result<(), Code> {
        if self.transaction.phase() == JournalPhase::OnDisk {
            self.disk.now.journal.as_mut().unwrap().extend(data);
            return self.disk.step();
        }
        let at = self.transaction.journal().len() as u64;
        self.transaction.write_journal(&mut self.disk, at, data)
    }

    fn image(&mut self) -> Vec<u8> {
        let len = self.transaction.len(&mut self.disk).unwrap();
        let mut image = vec![0; usize::try_from(len).unwrap()];
        assert!(self.transaction.read(&mut self.disk, 0, &mut image).unwrap());
        image
    }

    /// Changes pages of the database, and of `model`, which is what its connection sees.
    fn change(&mut self, model: &mut Vec<u8>) -> Result<(), Code> {
        let before = model.clone();
        self.append(&[u8::try_from(before.len() / PAGE).unwrap()])?;
        let mut journaled = [false; PAGES];
        for number in 0..self.disk.draw(8) {
            // As in SQLite, each transaction changes the first page.
            let page = if number == 0 { 0 } else { usize::try_from(self.disk.draw(PAGES as u64)).unwrap() };
            let range = page * PAGE..(page + 1) * PAGE;
            if range.end <= before.len() && !std::mem::replace(&mut journaled[page], true) {
                self.append(&[&[u8::try_from(page).unwrap()], &before[range.clone()]].concat())?;
            }
            let bytes = [u8::try_from(self.disk.draw(256)).unwrap(); PAGE];
            self.transaction.write(&mut self.disk, range.start as u64, &bytes)?;
            model.resize(model.len().max(range.end), 0);
            model[range].copy_from_slice(&bytes);
            assert_eq!(self.image(), *model, "a connection sees its writes");
            if self.transaction.phase() == JournalPhase::Gathering && self.disk.draw(20) == 0 {
                self.transaction.fall_back(&mut self.disk)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Code> {
        self.transaction.flush_or_pass(&mut self.disk)?;
        if self.transaction.phase() == JournalPhase::OnDisk {
            self.disk.step()?;
            self.disk.now.journal = None;
            self.transaction.reset(JournalPhase::Idle);
            return Ok(());
        }
        self.transaction.end(&mut self.disk)
    }

    fn roll_back(&mut self, model: &[u8]) -> Result<(), Code> {
        let old = Left { file: self.image(), journal: None };
        let journal = match &self.disk.now.journal {
            Some(journal) => journal.clone(),
            None => self.transaction.journal().to_vec(),
        };
        let rolled_back = recovered(&Left { journal: Some(journal), ..old.clone() });
        for (page, bytes) in rolled_back.chunks(PAGE).enumerate() {
            let at = page * PAGE;
            if old.file.get(at..at + PAGE) != Some(bytes) {
                self.transaction.write(&mut self.disk, at as u64, bytes)?;
            }
        }
        self.transaction.truncate(&mut self.disk, rolled_back.len() as u64)?;
        assert_eq!(self.image(), model, "as before the transaction");
        self.end()
    }
}

impl MountTransaction {
    /// As the database does at `SQLITE_FCNTL_SYNC`.
    fn flush_or_pass(&mut self, disk: &mut Disk) -> Result<(), Code> {
        if self.phase() == JournalPhase::Gathering { self.flush(disk) } else { Ok(()) }
    }
}

/// One transaction. Whatever kill there is meanwhile leaves `before` or the whole transaction.
fn transact(writer: &mut Writer, seed: u64) {
    let before = writer.disk.now.file.clone();
    let mut after = before.clone();
    writer.disk.kills.clear();
    writer.transaction.begin();
    let changed = writer.change(&mut after);
    let commits = changed.is_ok() && writer.disk.draw(3) > 0;
    let ended = if !commits {
        writer.roll_back(&before)
    } else if writer.transaction.flush_or_pass(&mut writer.disk).is_ok() {
        writer.end()
    } else {
        writer.roll_back(&before).and(Err(IOERR_WRITE))
    };
    for (number, left) in writer.disk.kills.iter().enumerate() {
        let found = recovered(left);
        // SQLite goes by the length in its header: what lies behind that is not part of a database.
        let is_before = found.starts_with(&before);
        assert!(is_before || (commits && found == after), "seed {seed}, kill {number}: {left:?}");
    }
    let found = recovered(&writer.disk.now);
    match ended {
        Ok(()) => assert_eq!(found, if commits { after } else { before }, "seed {seed}"),
        Err(_) => assert!(found.starts_with(&before) || found == after, "seed {seed}"),
    }
    // Locks go, and the next one begins with what it finds.
    writer.transaction.reset(JournalPhase::Idle);
    writer.disk.now = Left { file: found, journal: None };
}

#[test]
fn any_kill_leaves_a_whole_transaction_or_none_of_it() {
    let (mut groups, mut kills) = (0, 0);
    for seed in 1..=CAMPAIGN_SEEDS {
        let mut writer = Writer::new(seed);
        writer.disk.fails_one_of = [0, 0, 40, 8][usize::try_from(seed % 4).unwrap()];
        for _ in 0..10 {
            transact(&mut writer, seed);
            kills += writer.disk.kills.len();
        }
        groups += writer.disk.groups;
    }
    assert!(groups > 1000 && kills > 10_000, "the campaign did little: {groups} groups, {kills} kills");
}

#[test]
fn a_batch_is_committed_as_a_group_or_dropped() {
    let mut writer = Writer::new(1);
    let before = writer.disk.now.file.clone();
    writer.transaction.begin_batch();
    writer.transaction.write(&mut writer.disk, 3, b"batch").unwrap();
    assert_eq!(writer.disk.now.file, before);
    writer.transaction.reset(JournalPhase::Idle);
    assert_eq!(writer.image(), before, "dropped");
    writer.transaction.begin_batch();
    writer.transaction.write(&mut writer.disk, 3, b"batch").unwrap();
    writer.transaction.commit_batch(&mut writer.disk).unwrap();
    assert_eq!((&writer.disk.now.file[3..8], writer.transaction.phase()), (&b"batch"[..], JournalPhase::Idle));
    writer.transaction.begin_batch();
    assert_eq!(writer.transaction.fall_back(&mut writer.disk), Err(FULL), "there is no journal");
}

#[test]
fn what_is_too_long_for_memory_has_a_journal_on_disk() {
    let mut writer = Writer::new(1);
    writer.transaction.begin();
    writer.append(&[4]).unwrap();
    let piece = vec![7; 1 << 20];
    for number in 0..2 * MEMORY_BYTES_MAX as u64 / (1 << 20) {
        let at = (number << 20).min(60 << 20);
        writer.transaction.write(&mut writer.disk, at, &piece).unwrap();
        writer.disk.kills.clear();
    }
    assert_eq!(
        (writer.transaction.phase(), writer.disk.now.journal.as_deref()),
        (JournalPhase::OnDisk, Some(&[4][..]))
    );
    assert_eq!(writer.disk.now.file.len(), 61 << 20);

    let mut writer = Writer::new(1);
    writer.transaction.begin();
    for at in (0..=MEMORY_BYTES_MAX as u64).step_by(1 << 20) {
        writer.transaction.write_journal(&mut writer.disk, at, &piece).unwrap();
    }
    assert_eq!(writer.transaction.phase(), JournalPhase::OnDisk);
}

#[test]
fn pages_written_again_and_again_need_no_journal_on_disk() {
    let mut writer = Writer::new(1);
    writer.transaction.begin();
    let piece = vec![7; 1 << 20];
    (0..200).for_each(|_| writer.transaction.write(&mut writer.disk, 0, &piece).unwrap());
    assert_eq!(writer.transaction.phase(), JournalPhase::Gathering);
}

#[test]
fn an_end_is_told_from_a_header() {
    assert!(ends_journal(0, &[0; 28]));
    assert!(!ends_journal(0, &[0; 512]) && !ends_journal(512, &[0; 28]) && !ends_journal(0, &[1; 28]));
}

//! Protocols of applications ([`PROTOCOLS`]) on real files: in a mount, or anywhere else.

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tidegate_crashcheck::applications::{At, Found, FoundFile, PROTOCOLS, Protocol, Step, Turn};

const STATE: &str = "user.state";

/// A protocol at work in a folder of its own.
pub struct Application {
    /// What it does.
    pub protocol: Protocol,
    folder: PathBuf,
    /// Files without a name, by their process.
    unnamed: BTreeMap<u64, File>,
}

/// Every protocol without a mapping, each in a folder below `root`, which is made.
///
/// # Errors
/// Those of the file system.
pub fn applications(root: &Path) -> io::Result<Vec<Application>> {
    let maps = |step: &Step| matches!(step, Step::MapAndSync(..));
    let protocols = PROTOCOLS.concat().into_iter().filter(|protocol| !protocol.act.iter().any(maps));
    let begin = |(number, protocol): (usize, Protocol)| {
        let folder = root.join(number.to_string());
        fs::create_dir_all(&folder)?;
        Ok(Application { protocol, folder, unnamed: BTreeMap::new() })
    };
    protocols.enumerate().map(begin).collect()
}

impl Application {
    /// Does act 0 of each process, and makes it durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn prepare(&mut self) -> io::Result<()> {
        for process in 0..self.protocol.processes {
            self.act(Turn { act: 0, process })?;
        }
        for path in self.found()?.0.into_keys() {
            File::open(self.folder.join(path))?.sync_all()?;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Does an act.
    ///
    /// # Errors
    /// Those of the file system that no protocol expects, as at the end of a mount.
    pub fn act(&mut self, turn: Turn) -> io::Result<()> {
        self.protocol.steps(turn.act).into_iter().try_for_each(|step| match self.step(turn, step) {
            Err(error) if is_expected(&error) => Ok(()),
            done => done,
        })
    }

    /// Everything in the folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn found(&self) -> io::Result<Found> {
        let (mut found, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.folder.join(&folder))? {
                let path = folder.join(entry?.file_name());
                let at = self.folder.join(&path);
                let about = fs::metadata(&at)?;
                let mut file = FoundFile {
                    mode: about.permissions().mode() & 0o7777,
                    links: usize::try_from(about.nlink()).unwrap_or(usize::MAX),
                    ..FoundFile::default()
                };
                if about.is_dir() {
                    folders.push(path.clone());
                } else {
                    file.bytes = fs::read(&at)?;
                    let mut value = [0; 64];
                    file.state = rustix::fs::getxattr(&at, STATE, &mut value).ok().map(|len| value[..len].to_vec());
                }
                found.insert(path.display().to_string(), file);
            }
        }
        Ok(Found(found))
    }

    fn at(&self, turn: Turn, path: &str) -> PathBuf {
        self.folder.join(turn.path(path))
    }

    fn step(&mut self, turn: Turn, step: Step) -> io::Result<()> {
        let at = |path: &str| self.at(turn, path);
        match step {
            Step::Create(path) => made().open(at(path)).map(drop),
            Step::Empty(path) => made().truncate(true).open(at(path)).map(drop),
            Step::MakeDirectory(path) => fs::create_dir(at(path)),
            Step::Append(path, bytes) => OpenOptions::new().append(true).open(at(path))?.write_all(&turn.bytes(bytes)),
            Step::Write(path, place, bytes) => write_at(&at(path), (turn, place), &turn.bytes(bytes), OFlags::empty()),
            Step::WriteThrough(path, place, bytes) => {
                write_at(&at(path), (turn, place), &turn.bytes(bytes), OFlags::DSYNC)
            }
            Step::WriteSlots(path, slots, bytes) => {
                write_at(&at(path), (turn, At::Byte(0)), &turn.slots(slots, bytes), OFlags::empty())
            }
            Step::Copy(from, to) => fs::write(at(to), fs::read(at(from))?),
            Step::Restore(from, to, bytes) => restore(&at(from), &at(to), bytes),
            Step::Truncate(path, place) => match place.offset(turn.act) {
                Some(len) => open(&at(path))?.set_len(len),
                None => Ok(()),
            },
            Step::Reserve(path, len) => allocate(&at(path), Some(0), len, FallocateFlags::empty()),
            Step::Punch(path, place, len) => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                allocate(&at(path), place.offset(turn.act), len, how)
            }
            Step::Zero(path, place, len) => {
                allocate(&at(path), place.offset(turn.act), len, FallocateFlags::ZERO_RANGE)
            }
            Step::Sync(path) | Step::SyncDirectory(path) => File::open(at(path))?.sync_all(),
            Step::WriteUnnamed(_) | Step::SyncUnnamed | Step::NameUnnamed(_) => self.unnamed(turn, step),
            Step::MapAndSync(..) => Err(io::ErrorKind::Unsupported.into()),
            Step::Every(_, steps) => steps.iter().try_for_each(|step| self.step(turn, *step)),
            step => self.change(turn, step),
        }
    }

    /// An operation on names or attributes.
    fn change(&self, turn: Turn, step: Step) -> io::Result<()> {
        let at = |path: &str| self.at(turn, path);
        match step {
            Step::Rename(path, to) => fs::rename(at(path), at(to)),
            Step::Exchange(path, to) => {
                Ok(rustix::fs::renameat_with(CWD, at(path), CWD, at(to), RenameFlags::EXCHANGE)?)
            }
            Step::Link(path, to) => fs::hard_link(at(path), at(to)),
            Step::Remove(path) if at(path).is_dir() => fs::remove_dir(at(path)),
            Step::Remove(path) => fs::remove_file(at(path)),
            Step::SetXattr(path) => Ok(rustix::fs::setxattr(at(path), STATE, &turn.bytes(8), XattrFlags::empty())?),
            Step::SetMode(path) => fs::set_permissions(at(path), fs::Permissions::from_mode(turn.mode())),
            _ => Ok(()),
        }
    }

    fn unnamed(&mut self, turn: Turn, step: Step) -> io::Result<()> {
        if let Step::WriteUnnamed(bytes) = step {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::open(&self.folder, flags, Mode::from_raw_mode(0o644))?);
            file.write_all(&turn.bytes(bytes))?;
            self.unnamed.insert(turn.process, file);
            return Ok(());
        }
        let Some(file) = self.unnamed.get(&turn.process) else { return Ok(()) };
        let Step::NameUnnamed(path) = step else { return file.sync_all() };
        let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, by_descriptor, CWD, self.at(turn, path), AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// What a step meets that changes nothing.
fn is_expected(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotFound};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotFound)
}

fn made() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn write_at(path: &Path, (turn, place): (Turn, At), data: &[u8], flags: OFlags) -> io::Result<()> {
    let Some(at) = place.offset(turn.act) else { return Ok(()) };
    let flags = flags.bits().cast_signed();
    OpenOptions::new().write(true).custom_flags(flags).open(path)?.write_all_at(data, at)
}

fn restore(from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
    let saved = fs::read(from)?;
    if saved.len() as u64 != bytes || Turn::of_bytes(&saved).is_none() {
        return Ok(());
    }
    let file = open(to)?;
    file.write_all_at(&saved, 0)?;
    file.sync_all()
}

fn allocate(path: &Path, at: Option<u64>, len: u64, how: FallocateFlags) -> io::Result<()> {
    let Some(at) = at else { return Ok(()) };
    Ok(rustix::fs::fallocate(open(path)?, how, at, len)?)
}

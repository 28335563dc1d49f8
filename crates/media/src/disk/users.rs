//! Other users of a disk that is to be written: a mount, a loop device, swap, another program.
//!
//! The kernel keeps others off a block device that is opened for one alone. Of a file it lets
//! anybody have his own idea: so it is looked for loop devices that show it, for swap in it, and
//! for programs that have it open for writing. All of it is looked up by device and inode number,
//! as names may be others elsewhere. What is hidden from this process, as loop devices over files
//! of another mount namespace and the files of other users' programs are, is not found.

use crate::locked_file::lock_holder::{LockHolder, mounted_at_number, unescaped};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, major, makedev, minor, statx};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The lowest bits of a descriptor's flags: 0 if it is open for reading only.
const ACCESS_MODE: u32 = 3;

/// Who uses the regular `file`, as what is said of it; None: nobody is known. Its own descriptors
/// in this process do not count.
pub(super) fn of_file(file: &File) -> io::Result<Option<LockHolder>> {
    let it = file.metadata()?;
    let kernel = loop_over(&it).or_else(|| is_swap(&it).then(|| "the system swaps to it".to_owned()));
    Ok(kernel.map(|by| LockHolder::User { by }).or_else(|| writer_of(&it)))
}

/// Who uses the block device at `path`, which cannot be opened for one alone.
pub fn user_of_device(path: &Path) -> LockHolder {
    let used = || of_number(&name_of(fs::metadata(path).ok()?.rdev())?);
    match LockHolder::of_path(path) {
        LockHolder::Unseen => used().map_or(LockHolder::Unseen, |by| LockHolder::User { by }),
        holder => holder,
    }
}

/// Who uses the block device at `path`, or a part of it, and keeps no one else off: a loop device
/// that shows it, a program that has it open. None: nobody is known.
///
/// # Errors
/// This process cannot look.
pub fn quiet_user_of_device(path: &Path) -> io::Result<Option<String>> {
    let number = fs::metadata(path)?.rdev();
    let mut names: Vec<String> = name_of(number).into_iter().collect();
    names.extend(names.first().map(|name| parts_of(name)).unwrap_or_default());
    let parts = names.iter().filter_map(|name| number_in(&fs::read_to_string(shown(name).join("dev")).ok()?));
    let numbers: Vec<u64> = [number].into_iter().chain(parts).collect();
    let is_it = |there: &Metadata| there.file_type().is_block_device() && numbers.contains(&there.rdev());
    match loop_that_shows(is_it) {
        Some(device) => Ok(Some(device)),
        None => opener_of(&numbers, &names),
    }
}

/// A device number as the kernel writes it: "MAJOR:MINOR".
fn number_in(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Another process that has one of the block devices `numbers` open, or one of `names` mapped.
fn opener_of(numbers: &[u64], names: &[String]) -> io::Result<Option<String>> {
    for (pid, folder) in other_processes()? {
        if has_open(&folder, numbers)? || has_mapped(&folder, names) {
            return Ok(Some(format!("process {pid} ({}) has it open", program_in(&folder))));
        }
    }
    Ok(None)
}

/// Whether the process shown in `folder` has one of the block devices `numbers` open. One that has
/// ended meanwhile has nothing.
fn has_open(folder: &Path, numbers: &[u64]) -> io::Result<bool> {
    let descriptors = match fs::read_dir(folder.join("fd")) {
        Err(error)
            if matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::NOENT | Errno::SRCH)) =>
        {
            return Ok(false);
        }
        descriptors => descriptors?,
    };
    // Files on servers that do not answer are not asked.
    let ask = |path: &Path| statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok();
    let is_it = |path: PathBuf| {
        let is_block =
            |told: &rustix::fs::Statx| FileType::from_raw_mode(told.stx_mode.into()) == FileType::BlockDevice;
        let told = ask(&path).filter(is_block);
        told.is_some_and(|told| numbers.contains(&makedev(told.stx_rdev_major, told.stx_rdev_minor)))
    };
    Ok(descriptors.flatten().any(|descriptor| is_it(descriptor.path())))
}

/// Whether the process shown in `folder` has one of the block devices `names` mapped.
fn has_mapped(folder: &Path, names: &[String]) -> bool {
    let maps = fs::read(folder.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().any(|line| line.rsplit_once(" /dev/").is_some_and(|(_, name)| names.iter().any(|it| it == name)))
}

/// What the kernel's own table of block devices calls the one of this number.
fn name_of(number: u64) -> Option<String> {
    let folder = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()?;
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// What becomes of the block device `name`, or of a part of it.
fn of_number(name: &str) -> Option<String> {
    [name.to_owned()].into_iter().chain(parts_of(name)).find_map(|device| {
        let folder = shown(&device);
        let number = fs::read_to_string(folder.join("dev")).ok()?;
        let mounted =
            mounted_at_number(number.trim()).map(|at| format!("/dev/{device} is mounted at {}", at.display()));
        let held = || names_in(&folder.join("holders")).next().map(|by| format!("/dev/{by} is made of /dev/{device}"));
        let swap = || fs::metadata(format!("/dev/{device}")).is_ok_and(|there| is_swap(&there));
        mounted.or_else(held).or_else(|| swap().then(|| format!("the system swaps to /dev/{device}")))
    })
}

/// Where the kernel shows the block device `name`.
fn shown(name: &str) -> PathBuf {
    PathBuf::from("/sys/class/block").join(name)
}

/// The partitions of the block device `name`.
fn parts_of(name: &str) -> Vec<String> {
    names_in(&shown(name)).filter(|part| part.starts_with(name)).collect()
}

fn names_in(folder: &Path) -> impl Iterator<Item = String> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

/// The loop device that shows the file `it`, and what that is used for.
fn loop_over(it: &Metadata) -> Option<String> {
    loop_that_shows(|there| is_same(there, it))
}

/// The loop device that shows the file or device that `is_it` knows, and what that is used for.
fn loop_that_shows(is_it: impl Fn(&Metadata) -> bool) -> Option<String> {
    let shows_it = |name: &String| {
        let shown = fs::read(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        let shown = shown.trim_ascii_end();
        // A file that has lost its name may have another.
        let shown = shown.strip_suffix(b" (deleted)").unwrap_or(shown).to_owned();
        let there = fs::metadata(PathBuf::from(OsString::from_vec(shown))).ok()?;
        is_it(&there).then_some(())
    };
    let device = names_in(Path::new("/sys/block")).find(|name| name.starts_with("loop") && shows_it(name).is_some())?;
    Some(match of_number(&device) {
        Some(used) => format!("the loop device /dev/{device} shows it, and {used}"),
        None => format!("the loop device /dev/{device} shows it"),
    })
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether the system swaps to `it`, a file or a block device.
fn is_swap(it: &Metadata) -> bool {
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    let places = swaps.split(|byte| *byte == b'\n').skip(1).filter_map(|line| line.split(|byte| *byte == b' ').next());
    places.filter_map(|place| fs::metadata(unescaped(place)).ok()).any(|there| match it.rdev() {
        0 => is_same(&there, it),
        device => there.rdev() == device,
    })
}

/// Another process that has the file `it` open for writing.
fn writer_of(it: &Metadata) -> Option<LockHolder> {
    other_processes().into_iter().flatten().find_map(|(pid, folder)| {
        let mut descriptors = names_in(&folder.join("fdinfo"));
        let writes = |descriptor: &String| {
            may_write(&fs::read_to_string(folder.join("fdinfo").join(descriptor)).ok()?, it.ino()).then_some(())?;
            is_same(&fs::metadata(folder.join("fd").join(descriptor)).ok()?, it).then_some(())
        };
        descriptors.find(|descriptor| writes(descriptor).is_some())?;
        Some(LockHolder::Writer { pid, program: program_in(&folder) })
    })
}

/// All processes but this one, with the folders in which the kernel shows them.
fn other_processes() -> io::Result<impl Iterator<Item = (u32, PathBuf)>> {
    let own = std::process::id();
    let numbers = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = numbers.filter(move |pid| *pid != own).map(|pid: u32| (pid, PathBuf::from(format!("/proc/{pid}"))));
    Ok(others.filter(move |(_, folder)| !is_about_to_run(folder, &own.to_string())))
}

/// The name of the program that the process shown in `folder` runs.
fn program_in(folder: &Path) -> String {
    fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned()
}

/// Whether the process shown in `folder` is a child of the process `own` that has not run its
/// program yet: it holds what was open when it was made, until then.
fn is_about_to_run(folder: &Path, own: &str) -> bool {
    let told = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let parent = told.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
    let program = |folder: &Path| fs::read_link(folder.join("exe")).ok();
    parent == Some(own) && program(folder).is_some_and(|it| program(Path::new("/proc/self")) == Some(it))
}

/// Whether a descriptor is open for writing, and may be of a file with this inode number, by what
/// the kernel tells of it. It is not asked for the file itself: that may be on a server that does
/// not answer.
fn may_write(told: &str, inode: u64) -> bool {
    let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = field("flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & ACCESS_MODE != 0) && field("ino:").is_none_or(|ino| ino.parse() == Ok(inode))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_descriptor_may_write_by_its_flags_and_its_file() {
        assert!(may_write("pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t7\n", 7));
        assert!(may_write("flags:\t01\n", 7), "older kernels tell no number");
        assert!(!may_write("flags:\t0100000\nino:\t7\n", 7) && !may_write("flags:\t02\nino:\t8\n", 7));
    }

    #[test]
    fn a_program_that_has_a_file_open_for_writing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::write(&path, "x").unwrap();
        let mut reader = Command::new("cat").stdin(File::open(&path).unwrap()).stdout(Stdio::null()).spawn().unwrap();
        reader.wait().unwrap();
        assert_eq!(of_file(&File::open(&path).unwrap()).unwrap(), None);
        let writes = File::options().append(true).open(&path).unwrap();
        let mut writer = Command::new("cat").stdin(Stdio::piped()).stdout(writes).spawn().unwrap();
        let told = of_file(&File::open(&path).unwrap()).unwrap().unwrap().to_string();
        drop(writer.stdin.take());
        writer.wait().unwrap();
        assert!(
            told.starts_with(&format!("process {} (", writer.id())) && told.ends_with("open for writing"),
            "{told}"
        );
    }
}

//! Programs that have files of a directory open, by what the kernel tells of each process.

use crate::files::mount_table::MountedFileSystem;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The bits of a descriptor's flags that say whether it is open for writing.
const WRITES: u32 = 0o3;

/// Most programs that are named.
const PROGRAMS_NAMED_MAX: usize = 5;

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Files that are open for writing, or that a process stores to through a mapping.
    Changing,
    /// Files and directories that are open, mapped or a process's current directory.
    Any,
}

/// Programs that use files below `directory`, each with one file, as far as this user may look at
/// them. This process is none of them.
pub fn users_of(directory: &Path, asked: Use) -> Vec<String> {
    users_below(directory, asked, &[])
}

/// Programs that use files of `directory` itself, as [`users_of`]: files of `mounts`, which cover
/// it, are none of them.
pub fn users_below(directory: &Path, asked: Use, mounts: &[MountedFileSystem]) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = numbers.filter(|pid| *pid != std::process::id());
    let named = others.filter_map(|pid| {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let file = opened(&proc, (directory, mounts), asked).or_else(|| mapped(&proc, (directory, mounts), asked))?;
        let name = fs::read_to_string(proc.join("comm")).unwrap_or_default();
        Some(format!("{} ({pid}) {}", name.trim_end(), file.display()))
    });
    named.take(PROGRAMS_NAMED_MAX).collect()
}

fn opened(proc: &Path, (directory, mounts): (&Path, &[MountedFileSystem]), asked: Use) -> Option<PathBuf> {
    let descriptors = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    let found = descriptors.filter_map(|entry| {
        let file = fs::read_link(entry.path()).ok().filter(|file| file.starts_with(directory))?;
        let about = proc.join("fdinfo").join(entry.file_name());
        let is_meant = || {
            let about = fs::read_to_string(about).ok()?;
            let is_of = |mount: &MountedFileSystem| word_of(&about, "mnt_id:") == Some(&*mount.id);
            Some((asked == Use::Any || writes(&about)) && !mounts.iter().any(is_of))
        };
        is_meant()?.then_some(file)
    });
    let folder =
        || fs::read_link(proc.join("cwd")).ok().filter(|file| asked == Use::Any && file.starts_with(directory));
    found.take(1).next().or_else(folder)
}

/// Whether a descriptor that the kernel describes so is open for writing.
fn writes(about: &str) -> bool {
    word_of(about, "flags:").is_some_and(|flags| u32::from_str_radix(flags, 8).is_ok_and(|flags| flags & WRITES != 0))
}

/// What the kernel says of a descriptor by this name.
fn word_of<'a>(about: &'a str, name: &str) -> Option<&'a str> {
    about.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Whether a mapping is of a file on the device of `mount`.
fn is_on(mount: &MountedFileSystem, device: &[u8]) -> bool {
    let number =
        mount.number.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    number.is_some_and(|(major, minor): (u32, u32)| format!("{major:02x}:{minor:02x}").as_bytes() == device)
}

fn mapped(proc: &Path, (directory, mounts): (&Path, &[MountedFileSystem]), asked: Use) -> Option<PathBuf> {
    let maps = fs::read(proc.join("maps")).ok()?;
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let slash = line.iter().position(|byte| *byte == b'/')?;
        let file = Path::new(std::ffi::OsStr::from_bytes(&line[slash..]));
        let mut words = line.split(|byte| *byte == b' ');
        let (mode, device) = (words.nth(1)?, words.nth(1)?);
        let is_of_mount = mounts.iter().any(|mount| is_on(mount, device));
        let stores = mode.get(1) == Some(&b'w') && mode.get(3) == Some(&b's');
        (file.starts_with(directory) && !is_of_mount && (asked == Use::Any || stores)).then(|| file.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn a_program_is_found_by_the_file_it_has_open_and_readers_are_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        fs::write(folder.join("read"), "").expect("made");
        let child =
            |open: fs::File| Command::new("cat").stdin(Stdio::piped()).stdout(open).spawn().expect("cat is everywhere");
        let read = fs::File::open(folder.join("read")).expect("it is there");
        let mut reader = Command::new("sleep").arg("60").stdin(read).spawn().expect("sleep is everywhere");
        // What another test starts has these files open too, until it runs its own program.
        let told = |child: &Child, how| -> Vec<String> {
            let own = format!("({})", child.id());
            users_of(&folder, how).into_iter().filter(|user| user.contains(&own)).collect()
        };
        assert_eq!(told(&reader, Use::Changing), Vec::<String>::new());
        assert_eq!(told(&reader, Use::Any).len(), 1);
        let mut writer = child(fs::File::create(folder.join("written")).expect("made"));
        let users = told(&writer, Use::Changing);
        assert!(users.len() == 1 && users[0].ends_with("/written"), "{users:?}");
        for child in [&mut reader, &mut writer] {
            child.kill().expect("it runs");
            child.wait().expect("it was started here");
        }
    }
}

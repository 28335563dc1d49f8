//! The command lines of mount(8)'s helpers: `mount.fuse.tidegate SOURCE MOUNTPOINT [-sfnv] [-N
//! NAMESPACE] [-o OPTIONS] [-t TYPE]`, and the one of umount(8).
//!
//! OPTIONS are those of `tidegate mount`, without their dashes, and those of every mount.

use super::{Umount, command};
use crate::errors::UsageFailure;
use rustix::mount::MountFlags;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use tidegate_host::spelling::nearest;

/// Options of `tidegate mount` that a line of fstab has no use for.
const NOT_IN_FSTAB: [&str; 6] = ["config", "name", "background", "help", "json", "verbose"];

/// Options that say when and by whom a file system is mounted, or what every mount has.
const OF_MOUNT: [&str; 18] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "dev",
    "suid",
    "exec",
    "async",
    "atime",
    "relatime",
    "allow_other",
];

/// Options of every mount that the kernel enforces at the mountpoint.
const FLAGS: [(&str, MountFlags); 6] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
];

/// Whether a command line is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pretence {
    /// It is carried out.
    None,
    /// `-f`: it is read, and nothing else.
    Fake,
}

/// What mount(8) asks for.
#[derive(Debug)]
pub(crate) struct FstabMount {
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    /// Further words for `tidegate mount`.
    pub(crate) options: Vec<OsString>,
    /// What the kernel enforces at the mountpoint.
    pub(crate) flags: MountFlags,
    pub(crate) pretence: Pretence,
}

/// A word of a helper's command line.
enum Word<'a> {
    Place(&'a OsString),
    Letter(u8),
    /// A letter with its value.
    Valued(u8, OsString),
}

impl FstabMount {
    fn of_nothing() -> FstabMount {
        FstabMount {
            source: PathBuf::new(),
            mountpoint: PathBuf::new(),
            options: Vec::new(),
            flags: MountFlags::empty(),
            pretence: Pretence::None,
        }
    }

    /// Reads what follows the program's name.
    pub(super) fn parse(words: &[OsString]) -> Result<FstabMount, UsageFailure> {
        let (mut helper, mut places, mut options, mut is_sloppy) =
            (FstabMount::of_nothing(), Vec::new(), Vec::new(), false);
        for word in read_words(words, b"oNt")? {
            match word {
                Word::Place(place) => places.push(place),
                Word::Valued(b'o', list) => options.extend(split(list.as_bytes())),
                Word::Letter(b's') => is_sloppy = true,
                Word::Letter(b'f') => helper.pretence = Pretence::Fake,
                // -n, -v, -t, -N: they change nothing here.
                Word::Letter(_) | Word::Valued(..) => {}
            }
        }
        let [source, mountpoint] = places[..] else {
            return Err(refused("SOURCE and MOUNTPOINT are needed", "a mount shows one directory at another", None));
        };
        (helper.source, helper.mountpoint) = (source.into(), mountpoint.into());
        for option in options {
            match helper.take(&option) {
                Err(_) if is_sloppy => {}
                taken => taken?,
            }
        }
        Ok(helper)
    }

    fn take(&mut self, option: &OsStr) -> Result<(), UsageFailure> {
        let bytes = option.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        let name = String::from_utf8_lossy(name);
        let is_for_others = name.is_empty() || name.starts_with("x-") || name == "comment";
        if is_for_others || OF_MOUNT.contains(&&*name) {
            return Ok(());
        }
        if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == name) {
            self.flags |= *flag;
            return Ok(());
        }
        let known = options();
        if !known.iter().any(|known| *known == name) {
            let all = format!("options of its own are {}", known.join(", "));
            let tip = nearest(&name, known.iter().map(String::as_str))
                .map(|near| format!("write `{near}` if that was meant"));
            return Err(refused(&format!("unknown mount option `{name}`"), &all, tip));
        }
        self.options.push(format!("--{name}").into());
        self.options.extend(value.map(|value| OsStr::from_bytes(value).to_owned()));
        Ok(())
    }
}

/// Reads the command line of umount(8)'s helper.
pub(super) fn parse_umount(words: &[OsString]) -> Result<Umount, UsageFailure> {
    let (mut places, mut lazy) = (Vec::new(), false);
    for word in read_words(words, b"Nt")? {
        match word {
            Word::Place(place) => places.push(place),
            Word::Letter(b'l') => lazy = true,
            Word::Letter(_) | Word::Valued(..) => {}
        }
    }
    match places[..] {
        [mountpoint] => Ok(Umount { mountpoint: mountpoint.into(), lazy }),
        _ => Err(refused("MOUNTPOINT is needed", "one mount is ended at a time", None)),
    }
}

/// The names of `tidegate mount`'s options, as a line of fstab has them.
fn options() -> Vec<String> {
    let program = command();
    let args = program.find_subcommand("mount").into_iter().flat_map(clap::Command::get_arguments);
    let longs = args.filter_map(clap::Arg::get_long).filter(|long| !NOT_IN_FSTAB.contains(long));
    longs.map(str::to_owned).collect()
}

/// Letters may stand together, behind one dash; those in `valued` have a value, in the same word or
/// the next one.
fn read_words<'a>(words: &'a [OsString], valued: &[u8]) -> Result<Vec<Word<'a>>, UsageFailure> {
    let (mut read, mut words) = (Vec::new(), words.iter());
    while let Some(word) = words.next() {
        let Some(mut letters) = word.as_bytes().strip_prefix(b"-").filter(|letters| !letters.is_empty()) else {
            read.push(Word::Place(word));
            continue;
        };
        while let Some((&letter, rest)) = letters.split_first() {
            letters = rest;
            if !valued.contains(&letter) {
                read.push(Word::Letter(letter));
                continue;
            }
            let mut next = || words.next().map(|word| word.as_bytes().to_vec());
            let value = if rest.is_empty() { next() } else { Some(rest.to_vec()) };
            let letter_shown = char::from(letter);
            let value = value
                .ok_or_else(|| refused(&format!("-{letter_shown} needs a value"), "it was the last word", None))?;
            read.push(Word::Valued(letter, OsString::from_vec(value)));
            letters = &[];
        }
    }
    Ok(read)
}

/// The options of a list with commas. A value in double quotes may have commas.
fn split(list: &[u8]) -> Vec<OsString> {
    let (mut options, mut option, mut is_quoted) = (Vec::new(), Vec::new(), false);
    for byte in list {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => options.push(OsString::from_vec(std::mem::take(&mut option))),
            byte => option.push(*byte),
        }
    }
    options.push(OsString::from_vec(option));
    options
}

fn refused(what: &str, why: &str, tip: Option<String>) -> UsageFailure {
    let command = "tidegate mount".to_owned();
    UsageFailure::Grammar { what: what.to_owned(), why: why.to_owned(), tip, command }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FstabMount, UsageFailure> {
        FstabMount::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_of_a_mount_are_those_of_the_command_line() {
        let helper = parse(
            "/s /m -o rw,pool=\"/p,q\",nodev,x-systemd.after=a,dram=16M,try -sfnv -t fuse.tidegate -N ns -onoexec,_netdev",
        );
        let helper = helper.expect("a good line");
        assert_eq!((helper.source, helper.mountpoint), ("/s".into(), "/m".into()));
        assert_eq!(helper.options, ["--pool", "/p,q", "--dram", "16M", "--try"]);
        assert_eq!(helper.flags, MountFlags::NODEV | MountFlags::NOEXEC);
        assert_eq!(helper.pretence, Pretence::Fake);
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_nearest_one_unless_the_line_is_sloppy() {
        let refused = parse("/s /m -o pol=/p").expect_err("a bad line");
        assert!(
            matches!(&refused, UsageFailure::Grammar { tip: Some(tip), .. } if tip.contains("`pool`")),
            "{refused:?}"
        );
        assert!(parse("/s /m -o pol=/p -s").is_ok());
        assert!(parse("/s /m -o config=/p").is_err() && parse("/s").is_err() && parse("/s /m -o").is_err());
    }

    #[test]
    fn umount_takes_a_mountpoint_and_may_be_lazy() {
        let parse = |line: &str| parse_umount(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let umount = parse("/m -fl -t fuse.tidegate -N ns").expect("a good line");
        assert_eq!((umount.mountpoint, umount.lazy), ("/m".into(), true));
        assert!(parse("-l").is_err());
    }
}

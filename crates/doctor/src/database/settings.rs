//! Settings of databases: files of text that are read as far as they can be, and where each value
//! comes from.

use crate::answers::{PlaceAnswer, answer_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_host::files::regular;

/// Most bytes of one file of settings.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Most files of settings that include each other in a chain; the databases' own limits are about
/// as high.
const INCLUDES_MAX: usize = 10;

/// Most files of settings of one database, and most of them that are told to be unreadable.
const FILES_MAX: usize = 256;
const GAPS_MAX: usize = 16;

/// Why a file of settings is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableSettings {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no regular file")]
    NoFile,
    #[error("it has more than {} KiB, which no file of settings has", SETTINGS_BYTES_MAX >> 10)]
    TooLarge,
    #[error("its bytes are no text")]
    NoText,
    #[error("its file system does not answer")]
    Silent,
}

/// The text of a file of settings. Pipes and devices are refused, and not opened: they may never
/// end, and some act when they are opened.
pub(super) fn text_of(path: &Path) -> Result<String, UnreadableSettings> {
    text_in(opened(path)?)
}

fn opened(path: &Path) -> Result<File, UnreadableSettings> {
    if answer_of(path) == PlaceAnswer::Silent {
        return Err(UnreadableSettings::Silent);
    }
    regular::open(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => UnreadableSettings::NoFile,
        _ => error.into(),
    })
}

fn text_in(file: File) -> Result<String, UnreadableSettings> {
    let mut bytes = Vec::new();
    file.take(SETTINGS_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SETTINGS_BYTES_MAX {
        return Err(UnreadableSettings::TooLarge);
    }
    let text = String::from_utf8(bytes).map_err(|_| UnreadableSettings::NoText)?;
    if text.contains('\0') { Err(UnreadableSettings::NoText) } else { Ok(text) }
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundSetting {
    pub(super) value: String,
    origin: SettingOrigin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SettingOrigin {
    Line(PathBuf, usize),
    CommandLine,
}

/// All settings that were found: of each the last one, as databases read them.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundSettings {
    values: BTreeMap<String, FoundSetting>,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
    /// Their devices and inodes.
    seen: BTreeSet<(u64, u64)>,
    /// Files that could not be read, with the reason.
    pub(super) gaps: Vec<String>,
    /// Whether a file was left out because there are too many.
    is_cut_off: bool,
}

impl FoundSettings {
    pub(super) fn set(&mut self, name: &str, value: &str, (path, line): (&Path, usize)) {
        let origin = SettingOrigin::Line(path.to_owned(), line);
        self.values.insert(name.to_owned(), FoundSetting { value: value.to_owned(), origin });
    }

    /// A setting of the command line, which wins over files.
    pub(super) fn set_by_command_line(&mut self, name: &str, value: &str) {
        let setting = FoundSetting { value: value.to_owned(), origin: SettingOrigin::CommandLine };
        self.values.insert(name.to_owned(), setting);
    }

    /// The text of the file at `path`, which a chain of `depth` files includes. `None`: it cannot
    /// be read, or it is one file too many, and is a gap.
    pub(super) fn read(&mut self, path: &Path, depth: usize) -> Option<String> {
        if self.is_cut_off(path, depth) {
            return None;
        }
        self.read_text(path, |_| true)
    }

    /// Like [`FoundSettings::read`], of a file that was not read yet, under whatever path.
    pub(super) fn read_once(&mut self, path: &Path, depth: usize) -> Option<String> {
        if self.is_cut_off(path, depth) {
            return None;
        }
        self.read_text(path, |is_new| is_new)
    }

    /// The text of the file at `path`, if it is wanted: told whether it is read for the first time.
    fn read_text(&mut self, path: &Path, is_wanted: impl Fn(bool) -> bool) -> Option<String> {
        let text = opened(path).and_then(|file| {
            let about = file.metadata()?;
            let is_new = self.seen.insert((about.dev(), about.ino()));
            is_wanted(is_new).then(|| text_in(file)).transpose()
        });
        match text {
            Ok(text) => {
                self.files.extend(text.as_ref().map(|_| path.to_owned()));
                text
            }
            Err(error) => {
                self.gap(path, &error);
                None
            }
        }
    }

    /// Whether a chain of `depth` files, or all of them, are too many for one more at `path`, which
    /// is a gap then.
    fn is_cut_off(&mut self, path: &Path, depth: usize) -> bool {
        if depth <= INCLUDES_MAX && self.files.len() < FILES_MAX {
            return false;
        }
        if !self.is_cut_off {
            self.gap(path, &"files include each other, or more of them than are read");
        }
        self.is_cut_off = true;
        true
    }

    pub(super) fn gap(&mut self, path: &Path, why: &impl fmt::Display) {
        if self.gaps.len() >= GAPS_MAX {
            return;
        }
        self.gaps.push(format!("{}: {why}", path.display()));
    }

    pub(super) fn get(&self, name: &str) -> Option<&FoundSetting> {
        self.values.get(name)
    }

    /// The file whose value of `name` counts.
    pub(super) fn file_of(&self, name: &str) -> Option<&Path> {
        match &self.get(name)?.origin {
            SettingOrigin::Line(path, _) => Some(path),
            SettingOrigin::CommandLine => None,
        }
    }

    /// The value of `name`, or else `default`.
    pub(super) fn value<'s>(&'s self, name: &str, default: &'s str) -> &'s str {
        self.get(name).map_or(default, |setting| &setting.value)
    }

    /// A setting as findings name it: `fsync = off (postgresql.conf:7)`.
    pub(super) fn shown(&self, name: &str, default: &str) -> String {
        match self.get(name) {
            Some(FoundSetting { value, origin: SettingOrigin::Line(path, line) }) => {
                format!("{name} = {value} ({}:{line})", path.display())
            }
            Some(FoundSetting { value, origin: SettingOrigin::CommandLine }) => {
                format!("{name} = {value} (the server's command line)")
            }
            None => format!("{name} = {default} (the default)"),
        }
    }
}

/// Names of files in a folder that end in `suffix`, in order, without hidden ones.
pub(super) fn files_in(folder: &Path, suffix: &str) -> io::Result<Vec<PathBuf>> {
    if answer_of(folder) == PlaceAnswer::Silent {
        return Err(ErrorKind::TimedOut.into());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let shown = name.to_string_lossy();
        if shown.ends_with(suffix) && !shown.starts_with('.') {
            files.push(folder.join(&name));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_text_in_regular_files_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            path
        };
        assert_eq!(text_of(&file("good", b"a = 1\n")).expect("text"), "a = 1\n");
        assert!(matches!(text_of(&file("bad", b"\xff\xfe")), Err(UnreadableSettings::NoText)));
        assert!(matches!(text_of(&file("zero", b"a\0b")), Err(UnreadableSettings::NoText)));
        assert!(matches!(text_of(folder.path()), Err(UnreadableSettings::NoFile)));
        assert!(matches!(text_of(Path::new("/dev/zero")), Err(UnreadableSettings::NoFile)));
        assert!(matches!(text_of(&folder.path().join("none")), Err(UnreadableSettings::Io(_))));
        let large = file("large", b"");
        File::options().write(true).open(&large).and_then(|file| file.set_len(100 << 20)).expect("a sparse file");
        assert!(matches!(text_of(&large), Err(UnreadableSettings::TooLarge)));
    }

    #[test]
    fn the_last_value_counts_and_says_where_it_stands() {
        let mut settings = FoundSettings::default();
        assert_eq!(settings.shown("fsync", "on"), "fsync = on (the default)");
        settings.set("fsync", "on", (Path::new("/a"), 1));
        settings.set("fsync", "off", (Path::new("/b"), 7));
        assert_eq!(settings.value("fsync", "on"), "off");
        assert_eq!(settings.shown("fsync", "on"), "fsync = off (/b:7)");
        assert_eq!((settings.file_of("fsync"), settings.file_of("a")), (Some(Path::new("/b")), None));
        settings.set_by_command_line("fsync", "on");
        assert_eq!(settings.shown("fsync", "on"), "fsync = on (the server's command line)");
    }

    #[test]
    fn files_that_include_each_other_many_times_come_to_an_end() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut settings = FoundSettings::default();
        assert_eq!(settings.read(file.path(), INCLUDES_MAX).as_deref(), Some(""));
        assert_eq!(settings.read(file.path(), INCLUDES_MAX + 1), None);
        assert_eq!((0..2 * FILES_MAX).filter_map(|_| settings.read(file.path(), 0)).count(), FILES_MAX - 1);
        assert_eq!(settings.gaps.len(), 1);
        (0..2 * GAPS_MAX).for_each(|_| settings.gap(Path::new("/a"), &"no"));
        assert_eq!(settings.gaps.len(), GAPS_MAX);
    }

    #[test]
    fn a_file_with_two_paths_is_read_once_if_that_is_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "x").expect("written");
        std::os::unix::fs::symlink(at("a"), at("b"))
            .and_then(|()| std::fs::hard_link(at("a"), at("c")))
            .expect("linked");
        let mut settings = FoundSettings::default();
        let read = ["a", "b", "c"].map(|name| settings.read_once(&at(name), 0).is_some());
        assert_eq!((read, settings.files.len(), settings.gaps.len()), ([true, false, false], 1, 0));
        assert!(settings.read(&at("b"), 0).is_some());
    }

    #[test]
    fn files_are_taken_in_order_and_hidden_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.conf", "a.conf", ".c.conf", "d.txt"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let names = files_in(folder.path(), ".conf").expect("a folder");
        assert_eq!(names, ["a.conf", "b.conf"].map(|name| folder.path().join(name)));
    }
}

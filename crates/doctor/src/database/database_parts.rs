//! Parts of a database that lie elsewhere than its directory: behind links, on mounts of their own,
//! and where settings say.

use crate::answers::{PlaceAnswer, answer_of};
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use crate::place::{DirectoryPlace, PoolOf};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;

/// Parts that are looked at.
const PARTS_MAX: usize = 256;

/// Parts that are asked for at a time.
const ASKED_AT_ONCE: usize = 32;

/// A file or directory that a database may have elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatabasePart {
    subject: &'static str,
    path: PathBuf,
    /// The setting that names it, with its place. `None`: it lies in the directory.
    setting: Option<String>,
}

impl DatabasePart {
    /// A part of a log, which commits wait for.
    pub(super) fn log(path: PathBuf) -> DatabasePart {
        DatabasePart { subject: "log-place", path, setting: None }
    }

    /// A part of the data.
    pub(super) fn data(path: PathBuf) -> DatabasePart {
        DatabasePart { subject: "tablespace-place", path, setting: None }
    }

    /// The part as a setting names it.
    pub(super) fn named_by(self, setting: String) -> DatabasePart {
        DatabasePart { setting: Some(setting), ..self }
    }
}

/// What is in `directory` itself as a link or a mountpoint.
pub(super) fn inside(view: &MachineView, directory: &Path) -> Vec<PathBuf> {
    let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
    let links = fs::read_dir(directory).into_iter().flatten().flatten().filter(is_link).map(|entry| entry.path());
    let mounts = view.mounts().into_iter().map(|(at, _)| at).filter(|at| at.parent() == Some(directory));
    links.chain(mounts).collect()
}

/// What a part that lies elsewhere survives, and whether it answers. `place`: that of `directory`.
pub(super) fn findings(
    (view, pool_of): (&MachineView, PoolOf),
    (directory, place): (&Path, &DirectoryPlace),
    parts: &[DatabasePart],
) -> Vec<DoctorFinding> {
    let mut parts = parts.to_vec();
    parts.sort_by(|one, other| one.path.cmp(&other.path));
    parts.dedup_by(|one, other| one.path == other.path && one.setting == other.setting);
    let left = parts.len().saturating_sub(PARTS_MAX);
    parts.truncate(PARTS_MAX);
    let at = (directory, place);
    let told = answered(&parts, answer_of).into_iter().zip(&parts);
    let mut findings: Vec<_> = told.filter_map(|(answer, part)| part.finding(answer, (view, pool_of), at)).collect();
    findings.extend((left > 0).then(|| {
        let why = format!("at most {PARTS_MAX} parts of a database are looked at");
        DoctorFinding::ok("left-out", format!("{left} more parts are not told of"), why)
    }));
    findings
}

/// What the file system of each part answers; several are asked side by side.
fn answered(parts: &[DatabasePart], ask: impl Fn(&Path) -> PlaceAnswer + Sync) -> Vec<PlaceAnswer> {
    let at_once = |parts: &[DatabasePart]| {
        thread::scope(|threads| {
            let asked: Vec<_> = parts.iter().map(|part| threads.spawn(|| ask(&part.path))).collect();
            // A question that fails in a way that nobody expected has no answer.
            asked.into_iter().map(|answer| answer.join().unwrap_or(PlaceAnswer::Silent)).collect::<Vec<_>>()
        })
    };
    parts.chunks(ASKED_AT_ONCE).flat_map(at_once).collect()
}

impl DatabasePart {
    fn shown(&self) -> String {
        self.setting.clone().unwrap_or_else(|| self.path.display().to_string())
    }

    fn finding(
        &self,
        answer: PlaceAnswer,
        (view, pool_of): (&MachineView, PoolOf),
        (directory, place): (&Path, &DirectoryPlace),
    ) -> Option<DoctorFinding> {
        let (subject, shown) = (self.subject, self.shown());
        let fault = |found, why: &str, fix: &str| Some(DoctorFinding::new((Level::Fault, subject), found, why, fix));
        match answer {
            PlaceAnswer::Given => {}
            PlaceAnswer::Silent => {
                return fault(
                    format!("{shown} does not answer"),
                    "the database waits for it",
                    "see what hangs: tidegate doctor",
                );
            }
            PlaceAnswer::Dead => {
                let why = "the service of its mount is gone, and the database does not reach it";
                return fault(format!("{shown} lies in a dead mount"), why, "mount it again; tidegate doctor names it");
            }
        }
        let is_link = self.path.is_symlink();
        let target = match self.path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound && is_link => {
                return fault(
                    format!("{shown} leads nowhere"),
                    "the server does not start without it",
                    "mount what it leads to",
                );
            }
            Err(error) if error.kind() == ErrorKind::NotFound && self.setting.is_none() => return None,
            Err(error) => {
                let why = format!("{error}: what a power loss takes from it is not known");
                let fix = "run this as a user who may look at it, or correct the setting";
                return Some(DoctorFinding::new(
                    (Level::Warning, subject),
                    format!("{shown} cannot be looked at"),
                    why,
                    fix,
                ));
            }
        };
        let mount = |path: &Path| view.mount_of(path).map(|(at, mounted)| (at, mounted.number));
        if !is_link && mount(&target) == mount(directory) {
            return None;
        }
        let other = DirectoryPlace::of(view, &target, pool_of)?;
        Some(self.elsewhere((&target, &other), place))
    }

    /// The finding about a part that lies at `other`, and the rest at `place`.
    fn elsewhere(&self, (target, other): (&Path, &DirectoryPlace), place: &DirectoryPlace) -> DoctorFinding {
        let subject = self.subject;
        let DoctorFinding { level, found, why, fix, .. } = other.finding();
        let is_slower = subject == "log-place" && place.is_mount() && !other.is_mount();
        let found = if target == self.path {
            format!("{}: {found}", self.shown())
        } else {
            format!("{} leads to {}: {found}", self.shown(), target.display())
        };
        if is_slower && level < Level::Warning {
            let why = "the database lies in a mount, and its log does not: each commit waits for the log's disk";
            return DoctorFinding::new((Level::Advice, subject), found, why, "move the log into the mount");
        }
        DoctorFinding { level, subject, found, why, fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn disk() -> DirectoryPlace {
        DirectoryPlace::Foreign { kind: "disk".to_owned() }
    }

    /// A directory on a disk, with `log` on a tmpfs of its own.
    fn machine(directory: &Path) -> MadeMachine {
        let table = format!("1 1 0:77 / / rw - disk d rw\n2 1 0:30 / {}/log rw - tmpfs t rw\n", directory.display());
        MadeMachine::with(&[("/proc/self/mountinfo", &table)])
    }

    #[test]
    fn a_part_on_a_mount_of_its_own_is_examined_and_one_that_is_not_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().canonicalize().expect("it is there");
        ["log", "data"].iter().for_each(|name| fs::create_dir(directory.join(name)).expect("made"));
        let machine = machine(&directory);
        let of = |part: DatabasePart| findings((&machine.view(), Path::to_owned), (&directory, &disk()), &[part]);
        let log = of(DatabasePart::log(directory.join("log")));
        assert!(level_of(&log, "log-place") == Level::Fault && log[0].found.contains("memory (tmpfs)"), "{log:?}");
        assert_eq!(of(DatabasePart::data(directory.join("data"))), []);
        assert_eq!(of(DatabasePart::data(directory.join("none"))), []);
        let named = of(DatabasePart::data(directory.join("log/deeper/..")).named_by("dir = x (f:1)".to_owned()));
        assert_eq!(level_of(&named, "tablespace-place"), Level::Warning, "it is absent");
        let named = of(DatabasePart::data(directory.join("data/../log")).named_by("dir = x (f:1)".to_owned()));
        assert!(named[0].level == Level::Fault && named[0].found.starts_with("dir = x (f:1) leads to "), "{named:?}");
    }

    #[test]
    fn links_are_followed_and_those_that_lead_nowhere_are_faults() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().canonicalize().expect("it is there");
        let machine = machine(&directory);
        symlink(&directory, directory.join("one"))
            .and_then(|()| symlink("/nowhere", directory.join("two")))
            .expect("linked");
        let of = |name: &str, place: &DirectoryPlace| {
            let part = DatabasePart::log(directory.join(name));
            level_of(&findings((&machine.view(), Path::to_owned), (&directory, place), &[part]), "log-place")
        };
        let mount = DirectoryPlace::Mount { mountpoint: "/m".into(), pool: None, domain: None };
        assert_eq!(
            (of("one", &disk()), of("one", &mount), of("two", &mount)),
            (Level::Advice, Level::Advice, Level::Fault)
        );
    }

    #[test]
    fn a_part_that_does_not_answer_is_told_and_not_looked_at() {
        let machine = MadeMachine::new();
        for (answer, words) in [(PlaceAnswer::Silent, "does not answer"), (PlaceAnswer::Dead, "dead mount")] {
            let part = DatabasePart::log("/proc/self".into());
            let told = part.finding(answer, (&machine.view(), Path::to_owned), (Path::new("/"), &disk()));
            assert!(told.is_some_and(|told| told.level == Level::Fault && told.found.ends_with(words)), "{answer:?}");
        }
        let asked = AtomicUsize::new(0);
        let parts: Vec<_> = (0..100).map(|nth| DatabasePart::data(format!("/{nth}").into())).collect();
        let answers = answered(&parts, |path| {
            asked.fetch_add(1, Ordering::Relaxed);
            if path == Path::new("/7") { PlaceAnswer::Silent } else { PlaceAnswer::Given }
        });
        let silent: Vec<_> = (0..100).filter(|nth| answers[*nth] == PlaceAnswer::Silent).collect();
        assert_eq!((silent, answers.len(), asked.into_inner()), (vec![7], 100, 100));
    }

    #[test]
    fn too_many_parts_are_counted() {
        let parts: Vec<_> = (0..=PARTS_MAX).map(|nth| DatabasePart::data(format!("/none/{nth}").into())).collect();
        let told = findings((&MadeMachine::new().view(), Path::to_owned), (Path::new("/"), &disk()), &parts);
        assert!(told.len() == 1 && told[0].found.starts_with("1 more parts"), "{told:?}");
    }
}

//! The files and directories that a configuration names: whether they are there, and of the right
//! kind. None is opened for writing, and none is created.

use crate::answers::{PlaceAnswer, answer_of, leads_to};
use serde::Serialize;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use tidegate_host::files::{folder_of, mount_table};
use tidegate_host::shell::word;
use tidegate_mount_transport::KIND;
use tidegate_server::failure::ListenFailure;
use tidegate_server::fronts::nbd;
use tidegate_server::options::{Plan, VolumePlan};
use tidegate_server::sockets::listen::ListenAddress;
use tidegate_server::sockets::token::Token;

/// A mistake that only the file system shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMistake {
    /// What is wrong, with the name in the configuration and the path.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What corrects it.
    pub next: String,
}

impl FileMistake {
    fn new(what: String, why: impl Into<String>, next: impl Into<String>) -> FileMistake {
        FileMistake { what, why: why.into(), next: next.into() }
    }
}

/// The directories and the pool of a mount, as a configuration names them.
#[derive(Clone, Debug, Serialize)]
pub struct MountPlaces {
    /// The mount's name.
    pub name: String,
    /// The directory whose files are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub source: PathBuf,
    /// Where they are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub mountpoint: PathBuf,
    /// The pool. `None`: the default one.
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    pub pool: Option<PathBuf>,
}

/// Returns what is wrong with the files of a server's `plan`: regions and disks that are absent or
/// of another kind, folders of sockets, certificates that cannot be read, a block device twice.
pub fn server_files(plan: &Plan) -> Vec<FileMistake> {
    let mut found: Vec<_> = plan.volumes.iter().flat_map(of_volume).collect();
    let listeners = plan.listen.iter().cloned().filter_map(ListenAddress::into_path);
    let monitors = plan.volumes.iter().filter_map(|volume| volume.vhost_user.clone());
    let sockets: Vec<_> = listeners.chain(monitors).chain(plan.control.clone()).collect();
    found.extend(sockets.iter().filter_map(|path| of_socket(path)));
    if let Err(failure) = nbd::identity(plan) {
        let error = if let ListenFailure::Identity { error } = &failure { error.to_string() } else { String::new() };
        found.push(FileMistake::new(
            format!("[tls]: {failure}"),
            error,
            "name PEM files that the server's user may read",
        ));
    }
    let token = plan.metrics_token.as_deref().map(Token::from_file);
    if let Some(Err(error)) = token {
        let why = "the metrics have no token to ask for".to_owned();
        found.push(FileMistake::new(
            format!("metrics_token: {error}"),
            why,
            "name a file of the server's user with mode 0600, and in it one line of 16 characters or more",
        ));
    }
    found
}

fn of_volume(plan: &VolumePlan) -> Vec<FileMistake> {
    let VolumePlan { name, pmem, .. } = plan;
    let is_region = |about: &Metadata| about.is_file() || about.file_type().is_char_device();
    let kind = "a regular file or a DAX device";
    let twin = plan.mirror.twin();
    let next = match (twin, &plan.disk.path) {
        (Some(twin), _) => anew(pmem, twin),
        (_, Some(disk)) => format!("create it: tidegate create --pmem {} --size 8G --disk {}", word(pmem), word(disk)),
        (_, None) => format!("create it: tidegate create --pmem {} --size 1G", word(pmem)),
    };
    let region = of_file((&format!("volume {name:?}: the region"), pmem), (kind, is_region), &next);
    let twin = twin.and_then(|twin| {
        of_file((&format!("volume {name:?}: the other side"), twin), (kind, is_region), &anew(twin, pmem))
    });
    let is_disk = |about: &Metadata| about.is_file() || about.file_type().is_block_device();
    let disk = plan.disk.path.as_ref().and_then(|disk| {
        let what = format!("volume {name:?}: the disk");
        of_file(
            (&what, disk),
            ("a block device or a regular file", is_disk),
            "name the disk that was given to create --disk",
        )
    });
    region.into_iter().chain(twin).chain(disk).collect()
}

/// What to do if the side at `lost` of a mirror is lost, and the one at `left` is not.
fn anew(lost: &Path, left: &Path) -> String {
    let (lost, left) = (word(lost), word(left));
    format!(
        "if it is lost, make it anew: tidegate rebuild --pmem {left} --mirror {lost}; or name the other side alone, with degraded = true"
    )
}

/// What is wrong with a file that has to be there.
fn of_file(
    (what, path): (&str, &Path),
    (kind, is_right): (&str, impl Fn(&Metadata) -> bool),
    next: &str,
) -> Option<FileMistake> {
    let shown = path.display();
    match metadata(path) {
        Ok(about) if is_right(&about) => None,
        Ok(_) => {
            Some(FileMistake::new(format!("{what} {shown} is of another kind"), format!("it has to be {kind}"), next))
        }
        Err(error) => Some(FileMistake::new(format!("{what} {shown} cannot be looked at"), error.to_string(), next)),
    }
}

/// What a path leads to. A mount whose service hangs is given up.
fn metadata(path: &Path) -> io::Result<Metadata> {
    match answer_of(path) {
        PlaceAnswer::Silent => Err(io::ErrorKind::TimedOut.into()),
        PlaceAnswer::Given | PlaceAnswer::Dead => path.metadata(),
    }
}

/// What keeps a socket from being made at `path`.
fn of_socket(path: &Path) -> Option<FileMistake> {
    let shown = path.display();
    if let Err(error) = SocketAddr::from_pathname(path) {
        let next = "name a path of at most 107 bytes, without a byte of zero";
        return Some(FileMistake::new(format!("no socket can be made at {shown:?}"), error.to_string(), next));
    }
    if path.symlink_metadata().is_ok_and(|about| !about.file_type().is_socket()) {
        let why = "a server replaces the socket of a killed one, and no other file";
        return Some(FileMistake::new(
            format!("{shown} is there, and is no socket"),
            why,
            "name another path, or remove that file",
        ));
    }
    let folder = folder_of(path);
    // The server makes the folder of its default socket, and others are the operator's.
    match metadata(folder) {
        Ok(about) if about.is_dir() => None,
        Ok(_) => Some(FileMistake::new(
            format!("{} is no directory", folder.display()),
            format!("the socket {shown} is to be in it"),
            "name another path",
        )),
        Err(error) => {
            let next = format!("make it: mkdir -p {}; in a unit: RuntimeDirectory=", word(folder));
            Some(FileMistake::new(
                format!("the folder of the socket {shown} cannot be looked at"),
                error.to_string(),
                next,
            ))
        }
    }
}

/// Returns what is wrong with the directories and pools of `mounts`: absent ones, those of another
/// kind, a mountpoint that is not empty, and two mounts that would use one of them.
pub fn mount_files(mounts: &[MountPlaces]) -> Vec<FileMistake> {
    let mut found: Vec<_> = mounts.iter().flat_map(of_mount).collect();
    let real: Vec<_> = mounts.iter().map(MountPlaces::resolved).collect();
    for (at, mount) in real.iter().enumerate() {
        for other in &real[..at] {
            let names = format!("mounts {:?} and {:?}", other.name, mount.name);
            if mount.mountpoint == other.mountpoint {
                let why = "a directory shows the files of one mount";
                found.push(FileMistake::new(
                    format!("{names} have one mountpoint"),
                    why,
                    "name another mountpoint in one of them",
                ));
            }
            if mount.source == other.source {
                let why = "only one mount at a time may have a SOURCE";
                found.push(FileMistake::new(format!("{names} have one source"), why, "leave one of them out"));
            }
            if mount.pool.is_some() && mount.pool == other.pool {
                let why = "one pool belongs to one SOURCE";
                found.push(FileMistake::new(format!("{names} have one pool"), why, "name another pool in one of them"));
            }
        }
    }
    found
}

fn of_mount(mount: &MountPlaces) -> Vec<FileMistake> {
    let MountPlaces { name, source, mountpoint, pool } = mount;
    let directory = |what: &str, path: &Path| {
        let what = format!("mount {name:?}: {what}");
        of_file((&what, path), ("a directory", Metadata::is_dir), &format!("make it: mkdir -p {}", word(path)))
    };
    // A mount that is there, dead or alive, covers the directory below.
    let is_mounted = mount_table::at(mountpoint).is_some_and(|mounted| mounted.kind == KIND);
    let at = if is_mounted {
        None
    } else {
        directory("the mountpoint", mountpoint).or_else(|| of_contents(name, source, mountpoint))
    };
    let found = if is_mounted && source == mountpoint { None } else { directory("the source", source) };
    let pool = pool.as_ref().and_then(|pool| of_pool(name, source, pool));
    let nested = of_nesting(name, source, mountpoint);
    found.into_iter().chain(at).chain(nested).chain(pool).collect()
}

/// Neither of the two may lie in the other.
fn of_nesting(name: &str, source: &Path, mountpoint: &Path) -> Option<FileMistake> {
    let (source, mountpoint) = (resolved(source), resolved(mountpoint));
    let is_nested = source != mountpoint && (source.starts_with(&mountpoint) || mountpoint.starts_with(&source));
    is_nested.then(|| {
        let what = format!(
            "mount {name:?}: of the source {} and the mountpoint {} one lies in the other",
            source.display(),
            mountpoint.display()
        );
        let next = "name a mountpoint outside of the source, or the source itself";
        FileMistake::new(what, "the service would wait for itself", next)
    })
}

impl MountPlaces {
    /// These places, each without links.
    fn resolved(&self) -> MountPlaces {
        let MountPlaces { name, source, mountpoint, pool } = self;
        MountPlaces {
            name: name.clone(),
            source: resolved(source),
            mountpoint: resolved(mountpoint),
            pool: pool.as_deref().map(resolved),
        }
    }
}

/// `path` without links, as far as it is there and answers.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut above = path.ancestors().filter(|above| answer_of(above) == PlaceAnswer::Given);
    let real = above.find_map(|above| Some((above.canonicalize().ok()?, path.strip_prefix(above).ok()?)));
    match real {
        Some((real, rest)) if rest.as_os_str().is_empty() => real,
        Some((real, rest)) => real.join(rest),
        None => path,
    }
}

/// A mountpoint that is not SOURCE has to be empty.
fn of_contents(name: &str, source: &Path, mountpoint: &Path) -> Option<FileMistake> {
    if leads_to(source, mountpoint) {
        return None;
    }
    let mut entries = std::fs::read_dir(mountpoint).ok()?;
    entries.next().is_some().then(|| {
        let what = format!("mount {name:?}: the mountpoint {} is not empty", mountpoint.display());
        FileMistake::new(
            what,
            "the mount would cover files that are there",
            "name an empty directory, or SOURCE itself",
        )
    })
}

fn of_pool(name: &str, source: &Path, pool: &Path) -> Option<FileMistake> {
    let what = format!("mount {name:?}: the pool");
    if resolved(pool).starts_with(resolved(source)) {
        let next = "name a file outside of the source";
        return Some(FileMistake::new(
            format!("{what} {} lies in the source", pool.display()),
            "the mount would show it and need it",
            next,
        ));
    }
    if pool.symlink_metadata().is_ok() {
        let is_region = |about: &Metadata| about.is_file() || about.file_type().is_char_device();
        return of_file((&what, pool), ("a regular file or a DAX device", is_region), "name another file");
    }
    let folder = folder_of(pool);
    of_file(
        (&format!("{what}'s folder"), folder),
        ("a directory", Metadata::is_dir),
        "mount the file system that it is on, or name another file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::net::UnixListener;
    use tidegate_media::Access;
    use tidegate_server::options::{MirrorPlan, TlsIdentity};

    fn words(found: &[FileMistake]) -> String {
        found.iter().map(|mistake| format!("{}: {}\n", mistake.what, mistake.why)).collect()
    }

    fn plan(folder: &Path) -> Plan {
        Plan { volumes: vec![VolumePlan::of(folder.join("v"), Access::ReadWrite)], ..Plan::default() }
    }

    #[test]
    fn a_server_whose_files_are_there_has_no_mistake() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["v", "disk"] {
            fs::write(at(name), "").expect("written");
        }
        let _left = UnixListener::bind(at("s")).expect("a socket");
        let mut plan = plan(folder.path());
        plan.listen = vec![ListenAddress::Unix(at("s"))];
        plan.control = Some(at("control"));
        plan.volumes[0].disk.path = Some(at("disk"));
        assert_eq!(server_files(&plan), []);
    }

    #[test]
    fn an_absent_side_of_a_mirror_is_made_anew_from_the_other_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let [region, twin] = ["v", "w"].map(|name| folder.path().join(name));
        let mut plan = plan(folder.path());
        plan.volumes[0].mirror = MirrorPlan::With(twin.clone());
        for (left, lost, what) in [(&region, &twin, "the other side"), (&twin, &region, "the region")] {
            fs::write(left, "").expect("written");
            let [mistake] = &server_files(&plan)[..] else { panic!("one side is absent") };
            assert!(mistake.what.contains(what), "{mistake:?}");
            let rebuild = format!("tidegate rebuild --pmem {} --mirror {}", left.display(), lost.display());
            assert!(mistake.next.contains(&rebuild), "{mistake:?}");
            fs::remove_file(left).expect("removed");
        }
    }

    #[test]
    fn every_file_of_a_server_that_is_wrong_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let mut plan = plan(folder.path());
        plan.volumes[0].disk.path = Some(folder.path().to_owned());
        plan.volumes[0].vhost_user = Some(at("none/s"));
        fs::write(at("control"), "").expect("written");
        plan.control = Some(at("control"));
        plan.listen = ["long/".repeat(30), "s".to_owned()].map(|path| ListenAddress::Unix(at(&path))).into();
        mknodat(CWD, at("c.pem"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        plan.tls = Some(TlsIdentity { certificate: at("c.pem"), key: at("k.pem"), clients: None });
        plan.metrics_token = Some(at("token"));
        let told = words(&server_files(&plan));
        for part in [
            "the region",
            "the disk",
            "another kind",
            "none/s",
            "is no socket",
            "no socket can be made",
            "not a regular file",
            "[tls]",
            "metrics_token",
        ] {
            assert!(told.contains(part), "no {part:?} in:\n{told}");
        }
        assert_eq!(told.lines().count(), 7, "{told}");
    }

    #[test]
    fn directories_and_pools_of_mounts_are_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let mount = |name: &str, source: &str, mountpoint: &str, pool: &str| MountPlaces {
            name: name.to_owned(),
            source: at(source),
            mountpoint: at(mountpoint),
            pool: Some(at(pool)),
        };
        for name in ["s", "m"] {
            fs::create_dir(at(name)).expect("made");
        }
        assert_eq!(mount_files(&[mount("a", "s", "m", "pool"), mount("b", "m", "s", "other")]), []);
        assert_eq!(mount_files(&[mount("over itself", "s", "s", "pool")]), []);
        let told =
            words(&mount_files(&[mount("a", "none", "none", "s/x/pool"), mount("b", "none", "none", "s/x/pool")]));
        for part in ["the source", "the mountpoint", "pool's folder", "one mountpoint", "one source", "one pool"] {
            assert!(told.contains(part), "no {part:?} in:\n{told}");
        }
        fs::write(at("m/file"), "").expect("written");
        let told = words(&mount_files(&[mount("a", "s", "m", "s/pool")]));
        assert!(told.contains("is not empty") && told.contains("lies in the source"), "{told}");
        let told = words(&mount_files(&[mount("a", "m/file", "s", "s")]));
        assert!(told.contains("the source") && told.contains("another kind"), "{told}");
    }

    #[test]
    fn places_of_a_mount_are_compared_where_they_lead() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        ["s/in", "m/in", "empty"].iter().for_each(|name| fs::create_dir_all(at(name)).expect("made"));
        for (link, target) in [("to-s", "s"), ("to-s-in", "s/in"), ("to-empty", "empty")] {
            std::os::unix::fs::symlink(at(target), at(link)).expect("linked");
        }
        let told = |source: &str, mountpoint: &str, pool: &str| {
            let [source, mountpoint] = [source, mountpoint].map(at);
            words(&mount_files(&[MountPlaces { name: "a".to_owned(), source, mountpoint, pool: Some(at(pool)) }]))
        };
        for (source, mountpoint) in [("s", "s/in"), ("s", "to-s-in"), ("to-s", "s/in"), ("m/in", "m")] {
            let told = told(source, mountpoint, "pool");
            assert!(told.contains("one lies in the other"), "{source} {mountpoint}: {told}");
        }
        for pool in ["to-s/pool", "to-s-in/pool", "s/in/pool"] {
            assert!(told("s", "empty", pool).contains("lies in the source"), "{pool}");
        }
        assert_eq!(told("to-s", "s", "pool"), "", "the source itself is a mountpoint");
        assert_eq!(told("s", "empty", "pool"), "");
        let place = |name: &str, source: &str, mountpoint: &str, pool: &str| MountPlaces {
            name: name.to_owned(),
            source: at(source),
            mountpoint: at(mountpoint),
            pool: Some(at(pool)),
        };
        let told =
            words(&mount_files(&[place("a", "s", "empty", "empty/p"), place("b", "to-s", "to-empty", "to-empty/p")]));
        for part in ["one mountpoint", "one source", "one pool"] {
            assert!(told.contains(part), "no {part:?} in:\n{told}");
        }
    }
}

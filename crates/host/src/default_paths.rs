//! Where a user's default volume and sockets live, by the XDG base directory rules; sockets of a
//! service lie where systemd says.

use crate::owned::{self, NotOwn, UntrustedFile};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Only the user may enter the program's folders.
const FOLDER_MODE: u32 = 0o700;

/// Why there is no folder for a file.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system does not make it.
    #[error("cannot create {}: {error}", folder.display())]
    NotMade {
        /// The folder.
        folder: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// Other users may have put it there.
    #[error(transparent)]
    NotOwn(#[from] NotOwn),
}

/// The default volume: `default.pmem` in the state folder.
pub fn default_volume() -> PathBuf {
    state_folder(|name| std::env::var_os(name)).join("default.pmem")
}

/// The default pool of `run`: `default.pool` in the state folder.
pub fn default_pool() -> PathBuf {
    state_folder(|name| std::env::var_os(name)).join("default.pool")
}

/// The default socket of a volume: named after its file, in the runtime folder, or else the state
/// folder.
pub fn default_socket(volume: &Path) -> PathBuf {
    let mut name = volume.file_stem().unwrap_or("volume".as_ref()).to_owned();
    name.push(".sock");
    runtime_folder(|name| std::env::var_os(name)).join(name)
}

/// The control socket of a server of `volume`: beside it.
pub fn control_socket(volume: &Path) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push(".control");
    PathBuf::from(name)
}

/// The volume or pool whose control socket is at `socket` by default.
pub fn volume_of_control_socket(socket: &Path) -> Option<PathBuf> {
    let is_control = socket.extension().is_some_and(|extension| extension == "control");
    is_control.then(|| socket.with_extension(""))
}

/// Whether both paths lead to one file, by whichever of its names. Paths that lead nowhere are the
/// same if they are written the same.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|about| (about.dev(), about.ino()));
    one == other || file(one).is_ok_and(|one| file(other).is_ok_and(|other| one == other))
}

/// Makes the folder of `path`, and the folders above it, if they are absent.
pub fn make_folder_of(path: &Path) -> Result<(), FolderError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    made.map_err(|error| FolderError::NotMade { folder: folder.to_owned(), error })
}

fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let home = || absolute(variable("HOME")).or_else(home_of_user).unwrap_or_else(|| "/".into());
    absolute(variable("XDG_STATE_HOME")).unwrap_or_else(|| home().join(".local/state")).join("tidegate")
}

/// Where the system says that this user is at home, if the environment does not.
fn home_of_user() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// Makes the folder of `path`, whose name nobody typed, if it is absent. It has to be this user's
/// or root's, or below such a one.
pub fn make_own_folder_of(path: &Path) -> Result<(), FolderError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let Some((above, about)) = folder.ancestors().find_map(|above| Some((above, above.metadata().ok()?))) else {
        return make_folder_of(path);
    };
    let refused = |folder: &Path, distrust| {
        let (file, command) = (folder.to_owned(), "tidegate serve");
        FolderError::NotOwn(NotOwn {
            file,
            distrust,
            command,
            instead: "name places of your own: --pmem FILE --listen unix:PATH",
        })
    };
    if ![owned::own(), 0].contains(&about.uid()) {
        return Err(refused(above, UntrustedFile::Owner(about.uid())));
    }
    if above == folder && about.mode() & 0o022 != 0 {
        return Err(refused(folder, UntrustedFile::Writable(about.mode() & 0o7777)));
    }
    make_folder_of(path)
}

fn runtime_folder(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    // One of another user is not meant for this one, who has it of `sudo`.
    let foreign = |folder: &PathBuf| folder.metadata().is_ok_and(|about| about.uid() != owned::own());
    if let Some(folder) = folder_of_service(variable("RUNTIME_DIRECTORY")).filter(|folder| !foreign(folder)) {
        return folder;
    }
    match absolute(variable("XDG_RUNTIME_DIR")).filter(|folder| !foreign(folder)) {
        Some(folder) => folder.join("tidegate"),
        None => state_folder(variable),
    }
}

/// The first of the folders that systemd made for a service, of which it names several with colons
/// between them.
fn folder_of_service(folders: Option<OsString>) -> Option<PathBuf> {
    let first = folders?.as_bytes().split(|byte| *byte == b':').next().map(|name| OsStr::from_bytes(name).to_owned());
    absolute(first)
}

/// The XDG rules tell programs to ignore relative paths in these variables.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn a_control_socket_leads_back_to_its_volume() {
        for volume in ["/a/v", "/a/v.pmem"].map(Path::new) {
            assert_eq!(volume_of_control_socket(&control_socket(volume)).as_deref(), Some(volume));
        }
        assert_eq!(volume_of_control_socket(Path::new("/a/v.sock")), None);
    }

    #[test]
    fn the_state_folder_follows_xdg_then_home() {
        let xdg = state_folder(variables(&[("HOME", "/home/u"), ("XDG_STATE_HOME", "/state")]));
        assert_eq!(xdg, Path::new("/state/tidegate"));
        let home = state_folder(variables(&[("HOME", "/home/u"), ("XDG_STATE_HOME", "relative")]));
        assert_eq!(home, Path::new("/home/u/.local/state/tidegate"));
    }

    #[test]
    fn a_home_that_is_no_place_is_asked_of_the_system() {
        let of_user = home_of_user().unwrap_or_else(|| "/".into()).join(".local/state/tidegate");
        for home in [&[][..], &[("HOME", "")], &[("HOME", "here")]] {
            assert_eq!(state_folder(variables(home)), of_user, "{home:?}");
        }
    }

    #[test]
    fn the_runtime_folder_falls_back_to_the_state_folder() {
        let runtime = runtime_folder(variables(&[("HOME", "/home/u"), ("XDG_RUNTIME_DIR", "/run/user/1")]));
        assert_eq!(runtime, Path::new("/run/user/1/tidegate"));
        assert_eq!(runtime_folder(variables(&[("HOME", "/home/u")])), Path::new("/home/u/.local/state/tidegate"));
    }

    #[test]
    fn sockets_of_a_service_lie_where_systemd_says() {
        let of_service = &[("RUNTIME_DIRECTORY", "/run/of-service:/run/b"), ("XDG_RUNTIME_DIR", "/run/user/1")];
        assert_eq!(runtime_folder(variables(of_service)), Path::new("/run/of-service"));
        // A folder of another user is not meant for this one.
        let foreign = &[("RUNTIME_DIRECTORY", "/proc/1"), ("XDG_RUNTIME_DIR", "/run/user/1")];
        let of_root = owned::own() == 0;
        let expected = if of_root { "/proc/1" } else { "/run/user/1/tidegate" };
        assert_eq!(runtime_folder(variables(foreign)), Path::new(expected));
    }
}

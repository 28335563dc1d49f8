//! The tarball: a folder with the files of a package and an installer, for systems without dpkg.

use super::linking::Needs;
use super::{About, Built, archive, files, gzipped, text_of};
use anyhow::Result;
use std::path::PathBuf;

const README: &str = include_str!("tarball/README");
const INSTALLER: &str = "crates/cli/systemd/install";

/// The name of the tarball, and its bytes.
pub(super) fn made(built: &Built, about: &About) -> Result<(String, Vec<u8>)> {
    let program = Needs::of([built.program.as_path()])?;
    let libraries = files::linked(built);
    let libraries = Needs::of(libraries.iter().skip(1).map(PathBuf::as_path))?;
    let (kind, needs) = match program.is_none() {
        true => ("static", "needs no library of the system".to_owned()),
        false => ("gnu", format!("needs GNU's C library {} or newer", program.libc())),
    };
    let name = format!("tidegate-{}-linux-x86_64-{kind}", about.version);
    let mut tree = files::tree(built, about.version)?.moved("usr", &name)?;
    let readme = README.replace("@program@", &needs).replace("@libraries@", &libraries.libc());
    tree.file(&format!("{name}/README"), 0o644, readme.replace("@version@", about.version));
    tree.file(&format!("{name}/install"), 0o755, text_of(INSTALLER)?);
    Ok((format!("{name}.tar.gz"), gzipped(&archive::tar(&tree, "", about.epoch)?, about.level)?))
}

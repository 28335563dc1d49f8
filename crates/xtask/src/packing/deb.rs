//! The Debian package: an ar archive of two tar archives, of which one says what the other holds.

use super::linking::Needs;
use super::tree::Tree;
use super::{About, Built, archive, files, filtered, gzipped, printed, text_of};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// The only machine that the program was tried on.
const ARCHITECTURE: &str = "amd64";

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Where users put configurations; dpkg removes it with the package if it is empty.
const CONFIGURATION: &str = "etc/tidegate";

/// The name of the package's file, and its bytes.
pub(super) fn made(built: &Built, about: &About) -> Result<(String, Vec<u8>)> {
    // The last number counts packages of one version.
    let version = format!("{}-1", about.version);
    let mut data = files::tree(built, about.version)?;
    data.folder(CONFIGURATION, 0o755, 0);
    let change = gzipped(changelog(&version, about.epoch)?.as_bytes(), "-9")?;
    data.file("usr/share/doc/tidegate/changelog.Debian.gz", 0o644, change);
    data.file("usr/share/doc/tidegate/changelog.gz", 0o644, gzipped(text_of("CHANGELOG.md")?.as_bytes(), "-9")?);
    let linked = files::linked(built);
    let needs = Needs::of(linked.iter().map(PathBuf::as_path))?;
    let mut control = Tree::default();
    let depends: Vec<_> = needs.debian()?.into_iter().chain(["passwd".to_owned()]).collect();
    control.file("control", 0o644, fields(&version, &depends.join(", "), data.kib()));
    for script in SCRIPTS {
        control.file(script, 0o755, text_of(&format!("crates/cli/systemd/deb/{script}"))?);
    }
    // Packages of programs that link the C interface learn here on which one they depend.
    control.file("shlibs", 0o644, format!("libtidegate 0 tidegate (>= {})\n", about.version));
    // The loader is to learn of the library of the C interface.
    control.file("triggers", 0o644, "activate-noawait ldconfig\n");
    let control = gzipped(&archive::tar(&control, "./", about.epoch)?, "-9")?;
    let data = archive::tar(&data, "./", about.epoch)?;
    let packed = filtered(Command::new("xz").args([about.level, "--threads=1", "--stdout"]), &data, "xz-utils")?;
    let members = [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control), ("data.tar.xz", &packed)];
    Ok((format!("tidegate_{version}_{ARCHITECTURE}.deb"), archive::ar(&members, about.epoch)))
}

/// What dpkg is told of the package.
fn fields(version: &str, depends: &str, kib: usize) -> String {
    format!(
        "Package: tidegate
Version: {version}
Architecture: {ARCHITECTURE}
Maintainer: Tidegate maintainers <maintainers@tidegate.invalid>
Installed-Size: {kib}
Depends: {depends}
Suggests: fuse3, nbd-client, libnbd-bin
Section: admin
Priority: optional
Homepage: https://github.com/tidegate/tidegate
Description: persistent memory in front of storage
 Tidegate serves atomic block devices in persistent memory over NBD, caches
 disks there, and mounts directories whose syncs complete there. A write is
 safe as soon as it is in that memory. After a crash each block reads as it was
 before a write or after it, never as a mixture.
"
    )
}

/// The newest entry in Debian's form.
fn changelog(version: &str, epoch: u64) -> Result<String> {
    let date =
        printed(Command::new("date").args(["--utc", "--rfc-email", "--date"]).arg(format!("@{epoch}")), "coreutils")?;
    let date = String::from_utf8_lossy(&date).trim().to_owned();
    Ok(format!(
        "tidegate ({version}) unstable; urgency=medium

  * Package made from the sources; changelog.gz tells what changed in them.

 -- Tidegate maintainers <maintainers@tidegate.invalid>  {date}
"
    ))
}

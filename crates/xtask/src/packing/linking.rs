//! How programs and libraries are linked: which libraries they need, and from which version of the
//! C library on. `objdump` says so.

use super::printed;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What files need from the system's libraries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Names as the loader knows them.
    libraries: BTreeSet<String>,
    /// The newest version of a symbol of the C library.
    libc: (u32, u32),
}

impl Needs {
    /// What `files` need together.
    pub(super) fn of<'p>(files: impl IntoIterator<Item = &'p Path>) -> Result<Needs> {
        let mut needs = Needs::default();
        for file in files {
            let said = printed(Command::new("objdump").arg("-p").arg(file), "binutils")?;
            needs.add(&String::from_utf8_lossy(&said));
        }
        Ok(needs)
    }

    fn add(&mut self, dump: &str) {
        for line in dump.lines() {
            if let Some(library) = line.trim().strip_prefix("NEEDED") {
                self.libraries.insert(library.trim().to_owned());
            }
            let version = line.rsplit_once(" GLIBC_").and_then(|(_, version)| version.split_once('.'));
            // A third number is of versions before 2.4.
            let numbers = version.map(|(major, minor)| (major.parse(), minor.split('.').next().map(str::parse)));
            if let Some((Ok(major), Some(Ok(minor)))) = numbers {
                self.libc = self.libc.max((major, minor));
            }
        }
    }

    /// Whether nothing of the system is needed.
    pub(super) fn is_none(&self) -> bool {
        self.libraries.is_empty()
    }

    /// The oldest version of GNU's C library that has all.
    pub(super) fn libc(&self) -> String {
        format!("{}.{}", self.libc.0, self.libc.1)
    }

    /// Debian's packages that have all.
    pub(super) fn debian(&self) -> Result<BTreeSet<String>> {
        let package = |library: &String| {
            Ok(match library.split(".so").next().unwrap_or_default() {
                "libc" | "libm" | "libdl" | "libpthread" | "librt" | "ld-linux-x86-64" => {
                    format!("libc6 (>= {})", self.libc())
                }
                "libgcc_s" => "libgcc-s1".to_owned(),
                _ => {
                    bail!("no package of Debian is known for {library}: name it in crates/xtask/src/packing/linking.rs")
                }
            })
        };
        self.libraries.iter().map(package).collect()
    }
}

/// Paths of the libraries that the loader finds for `program` on this machine, the loader's own
/// included.
pub(super) fn loaded_by(program: &Path) -> Result<Vec<PathBuf>> {
    let said = printed(Command::new("ldd").arg(program), "libc-bin")?;
    Ok(paths_in(&String::from_utf8_lossy(&said)))
}

fn paths_in(listing: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    listing.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "Dynamic Section:\n  NEEDED               libgcc_s.so.1\n  NEEDED               libc.so.6\n\nVersion References:\n  required from libc.so.6:\n    0x09691a75 0x00 04 GLIBC_2.2.5\n    0x069691b4 0x00 02 GLIBC_2.34\n    0x0 0x00 03 GLIBC_ABI_DT_RELR\n";

    #[test]
    fn the_newest_symbol_decides_which_c_library_is_needed() {
        let mut needs = Needs::default();
        assert!(needs.is_none());
        needs.add(DUMP);
        let packages: Vec<_> = needs.debian().expect("both are known").into_iter().collect();
        assert_eq!(packages, ["libc6 (>= 2.34)", "libgcc-s1"]);
        needs.add("  NEEDED   libfoo.so.1\n");
        assert!(needs.debian().expect_err("it is not known").to_string().contains("libfoo.so.1"));
    }

    #[test]
    fn the_loader_is_among_what_it_loads() {
        let listing = "\tlinux-vdso.so.1 (0x7ff)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(paths_in(listing), expected);
    }
}

//! The files of the Debian package and the tarball, with the places they have on a machine.

use super::tree::Tree;
use super::{Built, gzipped, licences, printed, stripped, text_of};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that programs load by their paths.
const LIBRARY_PLACES: [(&str, &str); 2] =
    [("libtidegate_direct.so", "usr/lib/tidegate"), ("libtidegate_sqlite.so", "usr/lib/tidegate")];

/// The library of the C interface, where linkers look; programs load it by the name with a number,
/// which `crates/capi/build.rs` gives it.
const C_INTERFACE: (&str, &str) = ("usr/lib/libtidegate.so", "libtidegate.so.0");

/// Shells, and where each looks for its script.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tidegate"),
    ("zsh", "usr/share/zsh/vendor-completions/_tidegate"),
    ("fish", "usr/share/fish/vendor_completions.d/tidegate.fish"),
];

/// Files of the repository: where they lie, where they go, and their permissions.
const SOURCES: [(&str, &str, u32); 14] = [
    ("crates/cli/systemd/tidegate@.service", "usr/lib/systemd/system", 0o644),
    ("crates/cli/systemd/tidegate@.socket", "usr/lib/systemd/system", 0o644),
    ("crates/cli/systemd/tidegate-mount@.service", "usr/lib/systemd/system", 0o644),
    ("crates/cli/systemd/tidegate-metrics.service", "usr/lib/systemd/system", 0o644),
    ("crates/cli/systemd/mount.fuse.tidegate", "usr/sbin", 0o755),
    ("crates/cli/systemd/umount.fuse.tidegate", "usr/sbin", 0o755),
    ("crates/cli/systemd/mounts.toml", "usr/share/doc/tidegate/examples", 0o644),
    ("crates/cli/systemd/example.toml", "usr/share/doc/tidegate/examples", 0o644),
    ("crates/cli/systemd/grafana-dashboard.json", "usr/share/doc/tidegate/examples", 0o644),
    ("crates/capi/examples/commit.c", "usr/share/doc/tidegate/examples", 0o644),
    ("crates/capi/examples/log.c", "usr/share/doc/tidegate/examples", 0o644),
    ("crates/capi/include/tidegate.h", "usr/include", 0o644),
    ("crates/direct-preload/include/tidegate-mappings.h", "usr/include", 0o644),
    ("README.md", "usr/share/doc/tidegate", 0o644),
];

/// Folders whose pages and pictures are packed.
const PAGES: [&str; 3] = ["docs", "docs/guide", "docs/reference"];

/// What stands before each machine-readable statement of copyright.
const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Tidegate
Source: https://github.com/tidegate/tidegate

Files: *
Copyright: The Tidegate contributors
License: Apache-2.0 or Expat

License: Apache-2.0
 On Debian systems the whole text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
";

/// All files below `usr`.
pub(super) fn tree(built: &Built, version: &str) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("usr/bin/tidegate", 0o755, stripped(&built.program)?);
    for (name, place) in LIBRARY_PLACES {
        let library = stripped(&built.libraries.join(name))?;
        tree.file(&format!("{place}/{name}"), 0o644, library);
    }
    for (source, place, mode) in SOURCES {
        let name = source.rsplit('/').next().unwrap_or(source);
        tree.file(&format!("{place}/{name}"), mode, text_of(source)?);
    }
    let (linked, loaded) = C_INTERFACE;
    tree.file(&format!("usr/lib/{loaded}"), 0o644, stripped(&built.libraries.join("libtidegate.so"))?);
    tree.link(linked, loaded);
    tree.file("usr/lib/pkgconfig/tidegate.pc", 0o644, pkg_config(version)?);
    add_pages(&mut tree)?;
    add_own_words(&mut tree, &built.program).context("cannot print manual pages and completions")?;
    add_licences(&mut tree)?;
    Ok(tree)
}

/// Paths of everything that is linked.
pub(super) fn linked(built: &Built) -> Vec<PathBuf> {
    let names = LIBRARY_PLACES.map(|(name, _)| name).into_iter().chain(["libtidegate.so"]);
    std::iter::once(built.program.clone()).chain(names.map(|name| built.libraries.join(name))).collect()
}

fn pkg_config(version: &str) -> Result<String> {
    let template = text_of("crates/capi/tidegate.pc.in")?;
    let lines = template.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n"));
    let page: String = lines.collect();
    let values = [
        ("@prefix@", "/usr"),
        ("@includedir@", "${prefix}/include"),
        ("@libdir@", "${prefix}/lib"),
        ("@version@", version),
    ];
    Ok(values.iter().fold(page, |page, (name, value)| page.replace(name, value)))
}

fn add_pages(tree: &mut Tree) -> Result<()> {
    for folder in PAGES {
        let whole = workspace::root().join(folder);
        for entry in fs::read_dir(&whole).with_context(|| format!("cannot read {}", whole.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") || name.ends_with(".svg") {
                let path = format!("{folder}/{name}");
                tree.file(&format!("usr/share/doc/tidegate/{path}"), 0o644, text_of(&path)?);
            }
        }
    }
    Ok(())
}

/// What the program says about itself: manual pages and completions.
fn add_own_words(tree: &mut Tree, program: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    printed(Command::new(program).args(["man", "--out"]).arg(folder.path()), "tidegate")?;
    for entry in fs::read_dir(folder.path())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or_default();
        tree.file(&format!("usr/share/man/man{section}/{name}.gz"), 0o644, gzipped(&fs::read(&path)?, "-9")?);
    }
    for (shell, place) in COMPLETIONS {
        tree.file(place, 0o644, printed(Command::new(program).args(["completions", shell]), "tidegate")?);
    }
    Ok(())
}

fn add_licences(tree: &mut Tree) -> Result<()> {
    let indented = |text: &str| {
        text.lines()
            .map(|line| match line.trim_end() {
                "" => " .\n".to_owned(),
                line => format!(" {line}\n"),
            })
            .collect::<String>()
    };
    let place = "usr/share/doc/tidegate";
    tree.file(&format!("{place}/copyright"), 0o644, format!("{COPYRIGHT}{}", indented(&text_of("LICENSE-MIT")?)));
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        tree.file(&format!("{place}/{name}"), 0o644, text_of(name)?);
    }
    let page = licences::page().context("cannot collect the licences of crates")?;
    tree.file(&format!("{place}/licences-of-crates.txt.gz"), 0o644, gzipped(page.as_bytes(), "-9")?);
    Ok(())
}

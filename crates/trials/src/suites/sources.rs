//! Source packages of Debian, fetched and built once.

use crate::artefacts::{MissingError, cache, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_measure::programs::alone;

/// Fetches a source package into `.`, of the versions that this machine's lists of packages stand
/// for, or of that in `VERSION`: its own lists need not name sources. Leaves the tree in `tree`.
const FETCH: &str = r#"
    mkdir -p apt/parts apt/lists/partial
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -e "$list" ]; then
            sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' "$list" > "apt/parts/${list##*/}"
        fi
    done
    sources() {
        apt-get --quiet -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/parts" \
            -o Dir::State::lists="$PWD/apt/lists" -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= "$@"
    }
    sources update
    sources source "$PACKAGE${VERSION:+=$VERSION}"
    mv "$PACKAGE"-*/ tree
    rm -r apt
    cd tree
"#;

/// The tree of a source package, built by a shell script that runs in it.
pub(super) fn built(package: &str, build: &str) -> Result<PathBuf, MissingError> {
    built_of((package, ""), build)
}

/// The tree of the source package that an installed program was built from.
pub(crate) fn built_as_installed(package: &'static str, build: &str) -> Result<PathBuf, MissingError> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${source:Version}", package]);
    let version = run(&mut query, package)?;
    built_of((package, version.trim()), build)
}

/// The tree of a source package of a version. Without one, it is the newest.
fn built_of((package, version): (&str, &str), build: &str) -> Result<PathBuf, MissingError> {
    let root = cache()?.join("sources");
    let _alone = alone(&root).map_err(MissingError::file(&root))?;
    let folder = root.join(format!("{package}{}{version}", if version.is_empty() { "" } else { "-" }));
    let tree = folder.join("tree");
    let is_built = folder.join("built");
    if !is_built.exists() {
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(MissingError::file(&folder))?;
        }
        fs::create_dir_all(&folder).map_err(MissingError::file(&folder))?;
        let mut shell = Command::new("sh");
        shell.args(["-ec", &format!("{FETCH}{build}")]).current_dir(&folder);
        shell.env("PACKAGE", package).env("VERSION", version);
        run(&mut shell, "dpkg-dev")?;
        fs::write(&is_built, "").map_err(MissingError::file(&is_built))?;
    }
    Ok(tree)
}

/// The names of files in `folder` that `keeps` keeps, in order.
pub(super) fn names(folder: &Path, keeps: impl Fn(&str) -> bool) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| keeps(name)));
    }
    names.sort();
    Ok(names)
}

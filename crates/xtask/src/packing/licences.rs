//! The licences of the crates that are linked into the program and the libraries: each text once,
//! with the crates whose it is.

use super::{LIBRARIES, PROGRAM, printed};
use crate::builds::cargo_command;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    source: Option<String>,
}

/// The page of all licences.
pub(super) fn page() -> Result<String> {
    let linked = linked()?;
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let said = printed(cargo_command(&["metadata", "--format-version", "1", "--locked"]).args(platform), "cargo")?;
    let metadata: Metadata = serde_json::from_slice(&said).context("cargo metadata prints JSON")?;
    let is_linked = |package: &Package| {
        package.source.is_some() && linked.contains(&format!("{} v{}", package.name, package.version))
    };
    let packages = metadata.packages.into_iter().filter(is_linked);
    let texts: Vec<_> = packages.map(|package| Ok((texts_of(&package)?, package))).collect::<Result<_>>()?;
    Ok(written(&texts))
}

/// Names and versions of all crates that are linked, as `cargo tree` prints them.
fn linked() -> Result<BTreeSet<String>> {
    let mut tree = cargo_command(&["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    tree.args([PROGRAM].into_iter().chain(LIBRARIES).flat_map(|package| ["--package", package]));
    let said = printed(&mut tree, "cargo")?;
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    Ok(String::from_utf8_lossy(&said).lines().map(words).collect())
}

/// The texts of the files in a crate's folder that are named like licences.
fn texts_of(package: &Package) -> Result<BTreeSet<String>> {
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    let mut texts = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence =
            ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"].iter().any(|word| name.starts_with(word));
        if is_licence && path.is_file() {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.insert(String::from_utf8_lossy(&text).replace('\r', "").trim().to_owned());
        }
    }
    Ok(texts)
}

/// A list of the crates, and below it each text with the crates that have it.
fn written(packages: &[(BTreeSet<String>, Package)]) -> String {
    let title = |package: &Package| format!("{} {}", package.name, package.version);
    let mut page = "Crates that are part of Tidegate's program and libraries, with their licences\n\n".to_owned();
    let mut of_texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (texts, package) in packages {
        let licence = package.license.as_deref().unwrap_or("see its text");
        page += &format!("{:<40} {licence}\n", title(package));
        texts.iter().for_each(|text| of_texts.entry(text).or_default().push(title(package)));
    }
    for (text, packages) in of_texts {
        page += &format!("\n{}\n{}:\n\n{text}\n", "-".repeat(80), packages.join(", "));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_once_with_all_crates_that_have_it() {
        let package = |name: &str| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT".to_owned()),
            manifest_path: PathBuf::new(),
            source: None,
        };
        let text = BTreeSet::from(["Permission is granted.".to_owned()]);
        let page = written(&[(text.clone(), package("a")), (text, package("b"))]);
        assert_eq!(page.matches("Permission").count(), 1, "{page}");
        assert!(page.contains("\na 1.0.0, b 1.0.0:\n") && page.contains("MIT\n"), "{page}");
    }
}

//! Hadoop, as Maven Central has it: fetched once into the target folder, and pinned.

use crate::programs::{alone, said};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that a cluster needs.
pub const PROGRAMS: [&str; 4] = ["java", "curl", "sha256sum", "ip"];

/// Where Maven Central has them.
const ORIGIN: &str = "https://repo1.maven.org/maven2";

/// Folder, file and SHA-256 of each: 92 MB in all.
const JARS: [(&str, &str, &str); 8] = [
    (
        "org/apache/hadoop/hadoop-client-api/3.4.2",
        "hadoop-client-api-3.4.2.jar",
        "607c0299f4df33013bd0a0f37c8cf255c635bbaddd247b8fec68c210cc17d19f",
    ),
    (
        "org/apache/hadoop/hadoop-client-runtime/3.4.2",
        "hadoop-client-runtime-3.4.2.jar",
        "18d071c7f72f8a946677b398a57af9c7afa2dd41a81023c310f99373fec200b3",
    ),
    (
        "org/apache/hadoop/hadoop-client-minicluster/3.4.2",
        "hadoop-client-minicluster-3.4.2.jar",
        "ae2406c544825b7734b8aad4f87eff60d9ec422284f0b16c2856032083b63c77",
    ),
    (
        "org/apache/hadoop/hadoop-mapreduce-examples/3.4.2",
        "hadoop-mapreduce-examples-3.4.2.jar",
        "54d4dd9ef7f5c7ee02aa432a5432be79d6cc918711ae32ef8f3b41e4424a5e55",
    ),
    // With TestDFSIO. What it needs beside is in the jar for small clusters.
    (
        "org/apache/hadoop/hadoop-mapreduce-client-jobclient/3.4.2",
        "hadoop-mapreduce-client-jobclient-3.4.2-tests.jar",
        "7572f51200a464f5c6943b45da5d33c04cb1eaeac3123ff21cda365dd0ca3d23",
    ),
    (
        "commons-logging/commons-logging/1.2",
        "commons-logging-1.2.jar",
        "daddea1ea0be0f56978ab3006b8ac92834afeefbd9b7e4e6316fca57df0fa636",
    ),
    (
        "org/slf4j/slf4j-api/1.7.36",
        "slf4j-api-1.7.36.jar",
        "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    ),
    (
        "org/slf4j/slf4j-simple/1.7.36",
        "slf4j-simple-1.7.36.jar",
        "2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f",
    ),
];

/// The class path of all of them, fetched if they are not there. Fails if one has other contents
/// than it is known to have.
pub(super) fn fetched() -> anyhow::Result<String> {
    let folder = folder()?;
    let _alone = alone(&folder).with_context(|| format!("locking {}", folder.display()))?;
    let mut paths = Vec::new();
    for (above, file, digest) in JARS {
        let path = folder.join(file);
        if !path.exists() {
            fetch(&format!("{ORIGIN}/{above}/{file}"), &path, digest)?;
        }
        paths.push(path.display().to_string());
    }
    Ok(paths.join(":"))
}

fn fetch(url: &str, path: &Path, digest: &str) -> anyhow::Result<()> {
    let partial = path.with_extension("partial");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--location", "--retry", "3", "--output"]).arg(&partial).arg(url);
    said(&mut curl).with_context(|| format!("fetching {url}"))?;
    let found = said(Command::new("sha256sum").arg(&partial))?;
    ensure!(found.starts_with(digest), "{url} has the SHA-256 {found}, and not {digest}");
    fs::rename(&partial, path).with_context(|| format!("naming {}", path.display()))
}

/// Where they are kept: in the target folder of this program, which cargo marks.
fn folder() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let target = this.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    Ok(target.context("this program lies in no target folder of cargo")?.join("hadoop-3.4.2"))
}

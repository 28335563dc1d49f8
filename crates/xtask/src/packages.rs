//! The Debian packages that tests use, in one place, and their installation.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A package of Debian 12 and what needs it.
pub(crate) struct Package {
    name: &'static str,
    needed_for: &'static str,
}

const fn package(name: &'static str, needed_for: &'static str) -> Package {
    Package { name, needed_for }
}

/// What every full test needs.
pub(crate) const PACKAGES: [Package; 43] = [
    package("gcc", "linking, C programs for the guest, and the C interface"),
    package("libc6-dev", "linking, also statically for the guest"),
    package("pkg-config", "finding the rivals' libraries, and the C interface as its users do"),
    package("git", "listing the files that tidy judges"),
    package("qemu-system-x86", "the guest with Linux's own BTT driver"),
    package("busybox-static", "the guest's user land"),
    package("ndctl", "namespaces in the guest"),
    package("dmsetup", "the kernel's cache for persistent memory, in the guest"),
    package("bcache-tools", "the kernel's other cache, in the guest"),
    package("libpmem-dev", "the floor's rival"),
    package("libpmemblk-dev", "the BTT's rival"),
    package("libpmempool-dev", "PMDK's checker of BTT images"),
    package("libleveldb-dev", "the store of an experiment"),
    package("libnbd-bin", "NBD clients: nbdinfo, nbdcopy, nbdfuse"),
    package("nbd-client", "the kernel's NBD client, in the guest"),
    package("python3-libnbd", "the scripted NBD client: nbdsh"),
    package("qemu-utils", "an NBD client with its own view of the protocol: qemu-io, qemu-img"),
    package("fio", "verified random writes"),
    package("dpkg-dev", "unpacking the sources of fio, for an engine of it, and of suites of others"),
    package("rocksdb-tools", "RocksDB's benchmark, one of the experiments"),
    package("file", "what nbdinfo says that a volume holds"),
    package("fuse3", "mounts of nbdfuse and of ordinary users"),
    package("e2fsprogs", "ext4 on a volume"),
    package("xfsprogs", "XFS below a mount"),
    package("mount", "loop devices and mounts"),
    package("binutils", "what libc and the library under programs define"),
    package("sqlite3", "transactions of an unchanged program"),
    package("libsqlite3-dev", "a program of the trials that commits transactions"),
    package("acl", "ACLs of files in mounts"),
    package("libcap2-bin", "capabilities of files in mounts"),
    package("redis-server", "a server whose log is synced with each command"),
    package("redis-tools", "its clients"),
    package("postgresql", "a server whose processes write and sync files in common"),
    package("mariadb-server", "a server of the benchmarks that syncs its log with each commit"),
    package("make", "processes side by side under `run`"),
    package("glusterfs-server", "a volume of three replicas whose bricks lie on mounts"),
    package("glusterfs-client", "its mount"),
    package("debootstrap", "machines of their own, on which packages are installed"),
    package("xz-utils", "the Debian package, and the guest's kernel, unpacked"),
    package("iproute2", "the network between its nodes"),
    package("openjdk-17-jre-headless", "HDFS, whose data nodes lie on mounts"),
    package("chromium-headless-shell", "the page of the metrics in a browser"),
    package("curl", "fetching Hadoop, which Debian lacks, from Maven Central"),
];

/// What the long form of the tests needs beside them.
pub(crate) const PACKAGES_OF_LONG: [Package; 7] = [
    package("g++", "LevelDB's own tests, and the engine of fuzzing"),
    package("libgtest-dev", "what they are written with"),
    package("libgmock-dev", "another part of it"),
    package("libbenchmark-dev", "a library that they are linked to"),
    package("tcl-dev", "SQLite's own tests"),
    package("stress-ng", "calls about files of every kind, on a mount"),
    package("zlib1g-dev", "Git, whose own tests run on a mount"),
];

/// Where apt keeps the lists of packages there are.
const APT_LISTS: &str = "/var/lib/apt/lists";

/// Installs what is missing as root; otherwise says which command does.
pub(crate) fn provide(needed: &[Package]) -> Result<()> {
    let missing = missing(needed, &installed()?);
    let root = is_root();
    // A test fetches the guest's kernel from Debian by itself, and needs the lists for it.
    if root && !has_lists(Path::new(APT_LISTS)) {
        apt_get(&["update"])?;
    }
    if missing.is_empty() {
        println!("all {} packages are installed", needed.len());
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.name).collect();
    for package in &missing {
        println!("missing: {} ({})", package.name, package.needed_for);
    }
    if !root {
        bail!("run as root: apt-get update && apt-get install --yes --no-install-recommends {}", names.join(" "));
    }
    let install = [&["install", "--yes", "--no-install-recommends"], &names[..]].concat();
    // Lists that are too old name versions the mirror no longer has.
    apt_get(&install).or_else(|_| apt_get(&["update"]).and_then(|()| apt_get(&install)))
}

/// Names of all installed packages.
fn installed() -> Result<BTreeSet<String>> {
    let query =
        Command::new("dpkg-query").args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"]).output();
    let query = query.context("cannot ask dpkg: the tests want Debian 12 or a system like it")?;
    Ok(parse_installed(&String::from_utf8_lossy(&query.stdout)))
}

fn parse_installed(listing: &str) -> BTreeSet<String> {
    listing.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

fn missing<'a>(needed: &'a [Package], installed: &BTreeSet<String>) -> Vec<&'a Package> {
    // pkgconf took pkg-config's place after Debian 12.
    let has = |name: &str| installed.contains(name) || name == "pkg-config" && installed.contains("pkgconf");
    needed.iter().filter(|package| !has(package.name)).collect()
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

fn has_lists(folder: &Path) -> bool {
    let is_list = |name: &str| name.contains("_Packages");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| is_list(&entry.file_name().to_string_lossy()))
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    println!("$ apt-get {}", arguments.join(" "));
    let status = Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").status();
    let status = status.context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed: {status}", arguments[0]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_are_not_installed_are_missing() {
        let listing: String = PACKAGES.iter().map(|package| format!("installed {}\n", package.name)).collect();
        assert_eq!(missing(&PACKAGES, &parse_installed(&listing)).len(), 0);
        let without_fio = parse_installed(&listing.replace("installed fio", "config-files fio"));
        let missing: Vec<_> = missing(&PACKAGES, &without_fio).iter().map(|package| package.name).collect();
        assert_eq!(missing, ["fio"]);
    }

    #[test]
    fn no_package_is_listed_twice() {
        let all = || PACKAGES.iter().chain(&PACKAGES_OF_LONG);
        let names: BTreeSet<_> = all().map(|package| package.name).collect();
        assert_eq!(names.len(), all().count());
    }
}

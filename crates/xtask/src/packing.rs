//! Packages of the program: a Debian package, a tarball, and the image of a container.
//!
//! All are made of one list of files, in memory, by writers of their own: no daemon, no root and no
//! packaging tool takes part. The same sources, compilers and `SOURCE_DATE_EPOCH` give the same
//! bytes.

mod archive;
mod deb;
mod files;
mod image;
mod licences;
mod linking;
mod tarball;
mod tree;

use crate::{builds, workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Where the static program is built.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
const PROGRAM: &str = "tidegate-cli";
/// What the program loads under others, what SQLite loads, and what C programs link.
const LIBRARIES: [&str; 3] = ["tidegate-direct-preload", "tidegate-sqlite-vfs", "tidegate-capi"];

/// How a package is made.
#[derive(clap::Args)]
pub(crate) struct Packing {
    /// Pack the program and the libraries in FOLDER, and build nothing.
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,

    /// Where the package is written. Without it: `packages` in the folder of builds.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Compress little, for trials.
    #[arg(long)]
    fast: bool,
}

/// A form of package.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A package for dpkg.
    Deb,
    /// A folder with an installer.
    Tarball,
    /// An image for containers, as a file.
    Image,
}

/// A program and libraries, built.
struct Built {
    program: PathBuf,
    libraries: PathBuf,
}

/// What every form of package says of itself.
struct About {
    version: &'static str,
    /// Seconds since 1970 that all files of a package carry.
    epoch: u64,
    /// How packages are compressed, as gzip and xz are told.
    level: &'static str,
}

/// Makes a package and prints its path.
pub(crate) fn package(form: Form, packing: &Packing) -> Result<ExitCode> {
    let about =
        About { version: env!("CARGO_PKG_VERSION"), epoch: epoch()?, level: if packing.fast { "-1" } else { "-9" } };
    let built = match &packing.built {
        Some(folder) => Built { program: folder.join("tidegate"), libraries: folder.clone() },
        None => build(form)?,
    };
    let out = packing.out.clone().unwrap_or_else(|| builds::target().join("packages"));
    fs::create_dir_all(&out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    let (name, bytes) = match form {
        Form::Deb => deb::made(&built, &about),
        Form::Tarball => tarball::made(&built, &about),
        Form::Image => image::made(&built, &about),
    }?;
    let path = out.join(name);
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds what `form` has: the Debian package links the C library of its system, the others a
/// program that needs none. Libraries go under programs of the system and are linked as those are.
fn build(form: Form) -> Result<Built> {
    let target = builds::target();
    let release = target.join("release");
    let packages =
        |names: &[&str]| names.iter().flat_map(|name| ["--package".to_owned(), (*name).to_owned()]).collect();
    let cargo = |arguments: Vec<String>| {
        let mut command = builds::cargo_command(&["build", "--release"]);
        command.args(arguments);
        let status = command.status().context("cannot run cargo")?;
        ensure!(status.success(), "{command:?}: {status}");
        Ok(())
    };
    if form == Form::Deb {
        cargo(packages(&[&[PROGRAM], &LIBRARIES[..]].concat()))?;
        return Ok(Built { program: release.join("tidegate"), libraries: release });
    }
    let mut for_static: Vec<String> = packages(&[PROGRAM]);
    for_static.extend(["--target".to_owned(), STATIC_TARGET.to_owned()]);
    cargo(for_static).with_context(|| {
        format!("the static program needs `rustup target add {STATIC_TARGET}` and `apt-get install musl-tools`")
    })?;
    if form == Form::Tarball {
        cargo(packages(&LIBRARIES))?;
    }
    Ok(Built { program: target.join(STATIC_TARGET).join("release/tidegate"), libraries: release })
}

/// `SOURCE_DATE_EPOCH`, or else the time of the last commit.
fn epoch() -> Result<u64> {
    let said = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => {
            let git = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(workspace::root()).output();
            let git = git.context("cannot ask git for the last commit; set SOURCE_DATE_EPOCH")?;
            String::from_utf8_lossy(&git.stdout).into_owned()
        }
    };
    said.trim().parse().with_context(|| format!("`{}` is no time: set SOURCE_DATE_EPOCH to seconds", said.trim()))
}

/// What `command` prints; `package` of Debian has its program.
fn printed(command: &mut Command, package: &str) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| not_run(command, package))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim());
    Ok(output.stdout)
}

/// What `command` makes of `bytes`; `package` of Debian has its program.
fn filtered(command: &mut Command, bytes: &[u8], package: &str) -> Result<Vec<u8>> {
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| not_run(command, package))?;
    let mut input = child.stdin.take().context("the input is piped")?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || input.write_all(bytes));
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{command:?}: {}", output.status);
        writer.join().map_err(|_| anyhow::anyhow!("a writer ended too early"))??;
        Ok(output.stdout)
    })
}

fn not_run(command: &Command, package: &str) -> String {
    format!("cannot run {}; is it installed? apt-get install {package}", command.get_program().to_string_lossy())
}

/// `bytes` as gzip has them, without a name and a time.
fn gzipped(bytes: &[u8], level: &str) -> Result<Vec<u8>> {
    filtered(Command::new("gzip").args([level, "--no-name"]), bytes, "gzip")
}

/// A text of the repository.
fn text_of(path: &str) -> Result<String> {
    let whole = workspace::root().join(path);
    fs::read_to_string(&whole).with_context(|| format!("cannot read {}", whole.display()))
}

/// The file's bytes without symbols that only debuggers read.
fn stripped(path: &Path) -> Result<Vec<u8>> {
    ensure!(path.is_file(), "{} is not there: build it first, or leave --built out", path.display());
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let to = folder.path().join("stripped");
    printed(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(&to).arg(path), "binutils")?;
    fs::read(&to).with_context(|| format!("cannot read {}", to.display()))
}

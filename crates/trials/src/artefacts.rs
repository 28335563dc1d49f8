//! Artefacts that the trials make once and keep: a cache folder, programs compiled from C, digests
//! of files.

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Held while a program is compiled: the tests of one process ask for the same one at once.
static COMPILER: Mutex<()> = Mutex::new(());

/// Why something a trial needs could not be had. Trials fail on it; they never pass without their
/// peer.
#[derive(Debug, thiserror::Error)]
pub enum MissingError {
    /// A program that is not installed.
    #[error("`{program}` is not installed: apt-get install {package}")]
    Program {
        /// The program's name.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A command that failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command as one would type it.
        command: String,
        /// What it said.
        output: String,
    },
    /// The cache folder or a temporary file could not be used.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl MissingError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> MissingError + use<> {
        let path = path.to_owned();
        move |source| MissingError::File { path, source }
    }
}

/// The folder for what is made once: `$XDG_CACHE_HOME/tidegate` if the variable is set, else beside
/// the build.
///
/// The returned path exists. Several test programs may use it at once: write elsewhere, then
/// rename.
pub fn cache() -> Result<PathBuf, MissingError> {
    let folder = match std::env::var_os("XDG_CACHE_HOME").filter(|home| !home.is_empty()) {
        Some(home) => PathBuf::from(home).join("tidegate"),
        None => build_folder().join("trials-cache"),
    };
    fs::create_dir_all(&folder).map_err(MissingError::file(&folder))?;
    Ok(folder)
}

/// The build profile's folder, `target/debug` for example: test programs run from `deps` below it.
pub fn build_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the running test program has a path");
    let deps = program.parent().expect("a program lies in a folder");
    if deps.ends_with("deps") { deps.parent().expect("deps lies in a folder").to_owned() } else { deps.to_owned() }
}

/// Builds `parts`, arguments of cargo, now and in the profile of the tests, and returns the folder
/// that they are in; or the one that `TIDEGATE_BUILT` names, where all is built.
pub fn built(parts: &[&str]) -> Result<PathBuf, MissingError> {
    if let Some(folder) = std::env::var_os("TIDEGATE_BUILT") {
        return Ok(folder.into());
    }
    let folder = build_folder();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet"]).args(parts).arg("--target-dir");
    build.arg(folder.parent().expect("a profile's folder lies in the target folder"));
    build.args(folder.ends_with("release").then_some("--release"));
    run(&mut build, "cargo")?;
    Ok(folder)
}

/// Runs `command` to its end and returns what it printed. `package` has the program, should it be
/// missing. It reads nothing unless the caller gave it something to read.
pub fn run(command: &mut Command, package: &'static str) -> Result<String, MissingError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MissingError::Program { program: program.clone(), package },
        _ => MissingError::File { path: PathBuf::from(&program), source: error },
    })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let output = format!("{}; {said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Err(MissingError::Command { command: format!("{command:?}"), output })
}

/// A C program of the trials: its source, and how it is linked.
#[derive(Clone, Copy, Debug)]
pub struct CProgram {
    /// The program's name.
    pub name: &'static str,
    /// The text of its one source file.
    pub source: &'static str,
    /// What the compiler gets besides: libraries, `-static`.
    pub flags: &'static [&'static str],
    /// The Debian packages it is compiled from.
    pub packages: &'static str,
}

impl CProgram {
    /// The path of the compiled program, compiled now unless the same text was compiled before.
    pub fn build(&self) -> Result<PathBuf, MissingError> {
        self.build_with(&[])
    }

    /// As [`build`](Self::build), with arguments of the compiler that are not known before.
    pub fn build_with(&self, more: &[&str]) -> Result<PathBuf, MissingError> {
        let version = hex(&Sha256::digest(format!("{}{:?}{}", self.source, self.flags, more.join(" "))));
        let program = cache()?.join(format!("{}-{}", self.name, &version[..16]));
        let _alone = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
        if program.exists() {
            return Ok(program);
        }
        let unique = std::process::id();
        let source = program.with_extension(format!("{unique}.c"));
        let fresh = program.with_extension(format!("{unique}"));
        fs::write(&source, self.source).map_err(MissingError::file(&source))?;
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&fresh)
            .arg(&source)
            .args(self.flags)
            .args(more);
        let compiled = run(&mut compiler, self.packages);
        fs::remove_file(&source).map_err(MissingError::file(&source))?;
        compiled?;
        fs::rename(&fresh, &program).map_err(MissingError::file(&program))?;
        Ok(program)
    }
}

/// The SHA-256 of a whole file, in hexadecimal.
pub fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(&digest.finalize())),
            got => digest.update(&piece[..got]),
        }
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a line past the test harness's capture, so that it stands in the log of a run that
/// passed.
pub fn announce(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(io::stderr(), "{line}");
}

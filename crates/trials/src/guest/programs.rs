//! Programs of this workspace linked for a guest, which has no libraries: statically, against glibc, because the toolchain of
//! `rust-toolchain.toml` brings the standard library for no musl target.

use crate::artefacts::{MissingError, build_folder, run};
use std::fs;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A program's name, and its bytes.
pub(super) type Program = (&'static str, Vec<u8>);

/// `tidegate` and the clients that write to it, built now in a target folder of their own.
pub(super) fn build() -> Result<[Program; 2], MissingError> {
    let folder = build_folder().with_file_name("guest");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--target", TARGET, "--target-dir"]).arg(&folder);
    build.args(["--package", "tidegate-cli", "--bin", "tidegate"]);
    build.args(["--package", "tidegate-trials", "--bin", "guest-writer"]);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Less is optimised than in the tests themselves: that halves the time to build, and the guest is slow anyway.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
    run(&mut build, "cargo")?;
    let program = |name| {
        let path = folder.join(TARGET).join("debug").join(name);
        Ok((name, fs::read(&path).map_err(MissingError::file(&path))?))
    };
    Ok([program("tidegate")?, program("guest-writer")?])
}

//! Programs of this workspace linked for a guest, which has no libraries: statically, against glibc, because the toolchain of
//! `rust-toolchain.toml` brings the standard library for no musl target.

use crate::artefacts::{MissingError, build_folder, run};
use std::fs;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Each program's name and its bytes, built now in a target folder of their own. They are given as `package/name`.
pub(super) fn build(programs: &[&str]) -> Result<Vec<(String, Vec<u8>)>, MissingError> {
    let folder = build_folder().with_file_name("guest");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--target", TARGET, "--target-dir"]).arg(&folder);
    let parts = || programs.iter().map(|program| program.split_once('/').expect("a package and a name"));
    for (package, name) in parts() {
        build.args(["--package", package, "--bin", name]);
    }
    build.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Less is optimised than in the tests themselves: that halves the time to build, and the guest is slow anyway.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
    run(&mut build, "cargo")?;
    let bytes = |(_, name): (&str, &str)| {
        let path = folder.join(TARGET).join("debug").join(name);
        Ok((name.to_owned(), fs::read(&path).map_err(MissingError::file(&path))?))
    };
    parts().map(bytes).collect()
}

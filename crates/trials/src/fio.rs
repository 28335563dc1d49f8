//! fio with the engine for direct mappings, which is built with the headers of the installed fio's
//! source package.

use crate::artefacts::{CProgram, MissingError};
use crate::programs::HEADERS;
use crate::suites::sources::built_as_installed;
use std::path::PathBuf;

/// The engine, as the guide has it built.
const ENGINE: CProgram = CProgram {
    name: "fio-tidegate-mmap",
    source: include_str!("../../direct-preload/fio/tidegate-mmap.c"),
    flags: &["-shared", "-fPIC", "-D_GNU_SOURCE", HEADERS],
    packages: "gcc libc6-dev",
};

/// Makes `config-host.h`, without which the headers say nothing.
const CONFIGURE: &str = "./configure --disable-native";

/// The engine's file, for `ioengine=external:FILE`.
///
/// # Errors
/// fio, its source package, or a program that builds it is missing.
pub fn engine() -> Result<PathBuf, MissingError> {
    let tree = built_as_installed("fio", CONFIGURE)?;
    let tree = tree.to_string_lossy();
    // Not fio's own headers are judged by the compiler's warnings.
    ENGINE.build_with(&["-isystem", &tree, "-include", &format!("{tree}/config-host.h")])
}

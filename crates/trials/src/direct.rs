//! Programs with the direct path, in a mount.

use crate::artefacts::built;
use crate::mounted::MountTestbed;
use crate::programs::CLIENT;
use std::path::PathBuf;
use std::process::Command;

/// The library under programs with the direct path, which is built if it is not there.
pub fn library() -> PathBuf {
    let folder = built(&["--package", "tidegate-direct-preload"]).unwrap_or_else(|missing| panic!("{missing}"));
    folder.join("libtidegate_direct.so")
}

/// `program`, to be started in the mount with the direct path.
pub fn with_direct_path(testbed: &MountTestbed, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(testbed.mountpoint()).env("LD_PRELOAD", library()).env("TIDEGATE_DIRECT", "1");
    command.env("TIDEGATE_CONTEXTS", format!("5:{}", board(testbed)));
    command
}

/// The client with the direct path, told these words.
pub fn client(testbed: &MountTestbed, words: &[&str]) -> Command {
    let program = CLIENT.build().unwrap_or_else(|missing| panic!("{missing}"));
    let mut command = with_direct_path(testbed, program.to_str().expect("a plain path"));
    command.args(words);
    command
}

/// Where programs say their contexts to the mount.
fn board(testbed: &MountTestbed) -> String {
    let said = String::from_utf8(testbed.status_json().stdout).expect("text");
    let after = said.split("\"contexts\":\"").nth(1).unwrap_or_else(|| panic!("no contexts in {said}"));
    after.split('"').next().expect("a text has an end").to_owned()
}

/// A count of the mount's status.
pub fn counted(testbed: &MountTestbed, name: &str) -> u64 {
    let said = String::from_utf8(testbed.status_json().stdout).expect("text");
    let after = said.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name} in {said}"));
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

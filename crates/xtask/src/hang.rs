//! What the processes of a test that does not end are waiting for.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The frames of a thread's stack in the kernel that are printed.
const FRAMES: usize = 6;

/// A line for `pid` and each process that it or those began, and below it one for each thread: its
/// name, its state and where it waits in the kernel, as far as this user may know.
pub(crate) fn processes_of(pid: u32) -> String {
    let mut told = String::new();
    let parents = parents();
    let mut waiting = vec![pid];
    while let Some(pid) = waiting.pop() {
        tell(pid, &mut told);
        waiting.extend(parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
    }
    told
}

/// Every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, field(Path::new(&format!("/proc/{pid}")), "PPid")?.parse().ok()?))).collect()
}

fn tell(pid: u32, told: &mut String) {
    let folder = format!("/proc/{pid}");
    let words = fs::read(Path::new(&folder).join("cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    writeln!(told, "process {pid}: {}", words.trim_end()).expect("strings take all");
    for thread in fs::read_dir(Path::new(&folder).join("task")).into_iter().flatten().flatten() {
        let [name, state] = ["Name", "State"].map(|name| field(&thread.path(), name).unwrap_or_default());
        let stack = fs::read_to_string(thread.path().join("stack")).unwrap_or_default();
        let frames: Vec<_> = stack.lines().filter_map(|line| line.split_whitespace().nth(1)).take(FRAMES).collect();
        writeln!(told, "    {name}, {state}: {}", frames.join(" < ")).expect("strings take all");
    }
}

/// A field of the `status` in `folder`.
fn field(folder: &Path, name: &str) -> Option<String> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_and_its_children_are_told_of() {
        // It waits for its input: for ever, until this test closes it.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let told = processes_of(std::process::id());
        drop(child.stdin.take());
        child.wait().expect("ended");
        let own = told.lines().next().expect("a line");
        assert!(own.starts_with(&format!("process {}: ", std::process::id())), "{told}");
        assert!(told.contains(&format!("process {}: ", child.id())), "{told}");
        // The kernel keeps 15 bytes of a name.
        assert!(told.contains("hang::tests::a_, "), "{told}");
    }
}

//! Everything that a run is made of, killed at once.

use crate::served::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::Child;

fn children(of: Pid) -> Vec<Pid> {
    let pid = of.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Stops the supervisor and its programs, so that none sees another one's end, and kills them then.
pub fn kill_all(run: &mut Child) {
    let supervisor = Pid::from_child(run);
    let programs = children(supervisor);
    let all: Vec<_> =
        programs.iter().flat_map(|pid| children(*pid)).chain(programs.clone()).chain([supervisor]).collect();
    for signal in [Signal::STOP, Signal::KILL] {
        all.iter().for_each(|pid| _ = kill_process(*pid, signal));
    }
    run.wait().expect("it can be waited for");
    let is_gone = |pid: &Pid| {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("stat"));
        stat.map_or(true, |stat| stat.contains(") Z"))
    };
    until("all to be gone", || all.iter().all(is_gone));
}

//! Applications inside a guest: each works in a folder below ROOT for ever, and says which acts
//! were done.
//!
//! `guest-applications ROOT [DONE]` prints `ready`, and then `ack PROTOCOL PROCESS ACT` when an act
//! returned. DONE is a file with the same three numbers a line, of before the guest was killed: the
//! promises of all protocols are judged by it first, and each process goes on behind its last act.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use tidegate_crashcheck::applications::{ProcessState, Turn};
use tidegate_trials::applications::{Application, applications};

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let root = arguments.next().expect("guest-applications ROOT [DONE]");
    let done = arguments.next().map(|path| std::fs::read_to_string(path).expect("DONE can be read"));
    let is_first = done.is_none();
    let mut all = applications(&root).expect("folders can be made");
    let mut states = states_of(&all, &done.unwrap_or_default());
    for (application, states) in all.iter_mut().zip(&states) {
        match is_first {
            true => application.prepare().expect("the mount takes files"),
            false => judge(application, states),
        }
    }
    println!("ready");
    loop {
        for (number, (application, states)) in all.iter_mut().zip(&mut states).enumerate() {
            for ProcessState { process, done } in states {
                let turn = Turn { act: *done + 1, process: *process };
                application.act(turn).expect("the mount works");
                *done += 1;
                println!("ack {number} {process} {done}");
            }
        }
    }
}

fn judge(application: &Application, states: &[ProcessState]) {
    let found = application.found().expect("the mount can be read");
    if let Err(broken) = application.protocol.judge(&found, states) {
        println!("broken: {}: {broken}", application.protocol.name);
        std::process::exit(1);
    }
}

/// How far each process of each application came.
fn states_of(all: &[Application], done: &str) -> Vec<Vec<ProcessState>> {
    let numbers = |line: &str| -> Option<((usize, u64), u64)> {
        let mut words = line.split(' ');
        Some(((words.next()?.parse().ok()?, words.next()?.parse().ok()?), words.next()?.parse().ok()?))
    };
    let known: BTreeMap<_, _> = done.lines().filter_map(numbers).collect();
    let state = |number, process| {
        let done = known.get(&(number, process)).copied().unwrap_or(0);
        ProcessState { process, done }
    };
    let of = |(number, application): (usize, &Application)| {
        (0..application.protocol.processes).map(|process| state(number, process)).collect()
    };
    all.iter().enumerate().map(of).collect()
}

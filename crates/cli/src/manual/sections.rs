//! What manual pages have beside the grammar: examples, files, exit codes, and pages to see. One place for all of them.

use super::literal;
use crate::failure::Exit;
use std::fmt::Write;

/// What the page of a command has beside its grammar.
struct About {
    command: &'static str,
    /// What is done, and the line that does it.
    examples: &'static [(&'static str, &'static str)],
    /// Commands whose pages to see.
    see: &'static [&'static str],
}

const fn about(
    command: &'static str,
    examples: &'static [(&'static str, &'static str)],
    see: &'static [&'static str],
) -> About {
    About { command, examples, see }
}

/// The program, and every command.
const ABOUT: &[About] = &[
    about(
        "tidegate",
        &[
            ("Serve a volume of 1 GiB in the state folder, made if it is absent:", "tidegate serve"),
            ("See which servers run:", "tidegate list"),
        ],
        &["create", "serve", "info", "list", "stop", "run"],
    ),
    about(
        "create",
        &[
            ("Make a volume in persistent memory:", "tidegate create --pmem /mnt/pmem/v.pmem --size 1G"),
            (
                "Put a region in front of a disk:",
                "tidegate create --pmem /mnt/pmem/fast.pmem --size 1G --disk /dev/sdb",
            ),
        ],
        &["serve", "info"],
    ),
    about(
        "serve",
        &[
            ("Serve a volume on a unix socket:", "tidegate serve --pmem /mnt/pmem/v.pmem --listen unix:/tmp/v.sock"),
            ("Serve the volumes of a configuration file:", "tidegate serve --config /etc/tidegate/db.toml"),
        ],
        &["create", "stop", "list", "stat"],
    ),
    about("info", &[("Show what a volume is:", "tidegate info /mnt/pmem/v.pmem")], &["check", "list", "stat"]),
    about(
        "list",
        &[
            ("List this user's servers, runs and leftovers:", "tidegate list"),
            ("List those of every user, for scripts:", "sudo tidegate list --json"),
        ],
        &["stop", "status", "recover", "info"],
    ),
    about(
        "stop",
        &[
            ("Stop the server of a volume:", "tidegate stop /mnt/pmem/v.pmem"),
            ("Stop the server on a control socket:", "tidegate stop --control /run/tidegate/db.control"),
        ],
        &["serve", "list"],
    ),
    about(
        "stat",
        &[("Show every second what came in between:", "tidegate stat --pmem /mnt/pmem/v.pmem --watch")],
        &["info", "list"],
    ),
    about(
        "check",
        &[
            ("Check a volume:", "tidegate check /mnt/pmem/v.pmem"),
            ("See what a repair would do:", "tidegate check /mnt/pmem/v.pmem --repair --dry-run"),
        ],
        &["info", "scrub"],
    ),
    about(
        "flush",
        &[("Wait until the disk has everything:", "tidegate flush --pmem /mnt/pmem/fast.pmem --wait")],
        &["detach", "mode"],
    ),
    about(
        "mode",
        &[("Write to the disk before a write is answered:", "tidegate mode --pmem /mnt/pmem/fast.pmem write-through")],
        &["flush", "serve"],
    ),
    about("detach", &[("Set the disk free:", "tidegate detach --pmem /mnt/pmem/fast.pmem")], &["attach", "flush"]),
    about(
        "attach",
        &[("Give a detached cache its disk:", "tidegate attach --pmem /mnt/pmem/fast.pmem --disk /dev/sdb")],
        &["detach"],
    ),
    about(
        "resize",
        &[("Make the region larger:", "tidegate resize --pmem /mnt/pmem/fast.pmem --size 2G")],
        &["create", "info"],
    ),
    about(
        "salvage",
        &[("Save the dirty blocks to a new file:", "tidegate salvage --pmem /mnt/pmem/fast.pmem --to saved.img")],
        &["replay", "flush"],
    ),
    about(
        "replay",
        &[("Make an ordered disk whole whose region is lost:", "tidegate replay /dev/sdb --force")],
        &["create", "salvage"],
    ),
    about("scrub", &[("Verify every cached block:", "tidegate scrub --pmem /mnt/pmem/fast.pmem")], &["check"]),
    about(
        "run",
        &[(
            "Run a database whose syncs end in persistent memory:",
            "tidegate run --pool /mnt/pmem/pool --root /var/lib/app -- redis-server --dir /var/lib/app --appendonly yes",
        )],
        &["status", "recover", "list"],
    ),
    about("status", &[("Show what a run is doing:", "tidegate status /mnt/pmem/pool")], &["run", "list"]),
    about("recover", &[("Bring what a run left to its files:", "tidegate recover /mnt/pmem/pool")], &["run", "list"]),
    about("man", &[("Write the pages to a folder:", "tidegate man --out ~/.local/share/man/man1")], &["completions"]),
    about("completions", &[("Complete command lines in this shell:", "source <(tidegate completions bash)")], &["man"]),
];

/// Files, and what they are.
const FILES: [(&str, &str); 6] = [
    ("~/.local/state/tidegate/default.pmem", "the default volume; $XDG_STATE_HOME takes the place of ~/.local/state"),
    ("~/.local/state/tidegate/default.pool", "the default pool of tidegate-run(1)"),
    ("FILE.control", "the control socket of the server of the region FILE"),
    ("POOL.holds, POOL.salvaged", "the journal of a pool, and what recovery could not bring to its file"),
    ("/dev/shm/tidegate-*.cache", "write caches of volumes that are served, and those that killed servers left"),
    ("/etc/tidegate/NAME.toml", "the configuration file of the service tidegate@NAME"),
];

/// The sections of the page of `command`, in roff. None: nothing is written about it.
pub(super) fn of(command: &str) -> Option<String> {
    let about = ABOUT.iter().find(|about| about.command == command)?;
    let mut page = String::new();
    let mut line = |text: String| writeln!(page, "{text}").expect("a string takes all");
    line(".SH EXAMPLES".to_owned());
    for (does, example) in about.examples {
        line(format!(".PP\n{}\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE", literal(does), literal(example)));
    }
    line(".SH FILES".to_owned());
    FILES.iter().for_each(|(file, what)| line(format!(".TP\n{}\n{}", literal(file), literal(what))));
    line(".SH \"EXIT STATUS\"".to_owned());
    Exit::ALL.iter().for_each(|(exit, meaning)| line(format!(".TP\n{}\n{}", *exit as u8, literal(meaning))));
    line(".SH \"SEE ALSO\"".to_owned());
    let program = (command != "tidegate").then(|| "tidegate(1)".to_owned());
    let others = about.see.iter().map(|other| format!("tidegate\\-{other}(1)"));
    line(program.into_iter().chain(others).collect::<Vec<_>>().join(", "));
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::Program;
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_command_has_its_sections_and_every_reference_leads_somewhere() {
        let program = Program::command();
        let mut names: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
        names.push("tidegate");
        names.iter().for_each(|name| assert!(of(name).is_some(), "nothing about {name}"));
        for About { command, examples, see } in ABOUT {
            assert!(names.contains(command) && !examples.is_empty() && !see.is_empty(), "{command}");
            assert!(see.iter().all(|other| names.contains(other) && other != command), "{command}: {see:?}");
        }
    }

    #[test]
    fn every_example_is_a_line_of_the_grammar() {
        for (command, (_, example)) in
            ABOUT.iter().flat_map(|about| about.examples.iter().map(|of| (about.command, of)))
        {
            let line = example.trim_start_matches("sudo ").trim_start_matches("source <(").trim_end_matches(')');
            let read = Program::try_parse_from(line.split_whitespace());
            assert!(read.is_ok(), "{example}: {read:?}");
            assert!(command == "tidegate" || line.split_whitespace().nth(1) == Some(command), "{command}: {example}");
        }
    }
}

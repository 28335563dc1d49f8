//! Sections of manual pages beside the grammar: examples, files, exit codes, and pages to see; and
//! the page of configuration files.

use super::config_keys::{self, Key, Part};
use crate::commands::files::mount_config;
use crate::config;
use crate::errors::Exit;
use crate::grammar::examples;
use std::fmt::Write;

/// Every command, and the commands whose pages to see.
const SEE: &[(&str, &[&str])] = &[
    ("tidegate", &["create", "serve", "info", "list", "stop", "run"]),
    ("create", &["serve", "info"]),
    ("serve", &["create", "stop", "list", "stat"]),
    ("info", &["check", "list", "stat"]),
    ("list", &["stop", "status", "recover", "info"]),
    ("stop", &["serve", "list"]),
    ("stat", &["info", "list", "top"]),
    ("top", &["list", "stat", "status"]),
    ("check", &["info", "scrub"]),
    ("rebuild", &["create", "serve", "info"]),
    ("flush", &["detach", "mode"]),
    ("mode", &["flush", "serve"]),
    ("detach", &["attach", "flush"]),
    ("attach", &["detach"]),
    ("resize", &["create", "info"]),
    ("scrub", &["check"]),
    ("salvage", &["replay", "flush"]),
    ("replay", &["create", "salvage"]),
    ("mount", &["umount", "status", "recover"]),
    ("umount", &["mount", "status", "recover"]),
    ("run", &["status", "recover", "list"]),
    ("status", &["run", "list", "explain", "top"]),
    ("explain", &["mount", "status"]),
    ("recover", &["run", "list"]),
    ("doctor", &["config", "list", "status"]),
    ("config", &["serve", "mount", "run", "doctor"]),
    ("man", &["completions"]),
    ("completions", &["man"]),
    ("help", &["man"]),
];

/// Files, and what they are.
const FILES: [(&str, &str); 6] = [
    ("~/.local/state/tidegate/default.pmem", "the default volume; $XDG_STATE_HOME takes the place of ~/.local/state"),
    ("FILE.control", "the control socket of the server of the region FILE"),
    ("POOL.mount, POOL.salvaged", "which SOURCE a pool belongs to, and what recovery could not write back"),
    ("/dev/shm/tidegate-*.cache", "write caches of volumes that are served, and those that killed servers left"),
    ("/etc/tidegate/mounts.toml", "the mounts of the services tidegate-mount@NAME"),
    ("/etc/tidegate/NAME.toml", "the configuration file of the service tidegate@NAME"),
];

/// The sections of the page of `command`, in roff. None: nothing is written about it.
pub(super) fn of(command: &str) -> Option<String> {
    let (_, see) = SEE.iter().find(|(of, _)| *of == command)?;
    let mut page = String::new();
    let mut line = |text: String| writeln!(page, "{text}").expect("a string takes all");
    line(".SH EXAMPLES".to_owned());
    for (does, example) in examples(command) {
        line(format!(".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE", literal(does), literal(example)));
    }
    line(".SH FILES".to_owned());
    FILES.iter().for_each(|(file, what)| line(format!(".TP\n{}\n{}", literal(file), literal(what))));
    line(".SH \"EXIT STATUS\"".to_owned());
    Exit::ALL.iter().for_each(|(exit, meaning)| line(format!(".TP\n{}\n{}", *exit as u8, literal(meaning))));
    line(".SH \"SEE ALSO\"".to_owned());
    let program = (command != "tidegate").then(|| "tidegate(1)".to_owned());
    let others = see.iter().map(|other| format!("tidegate\\-{other}(1)"));
    let file = ["serve", "mount", "run", "config"].contains(&command).then(|| "tidegate.toml(5)".to_owned());
    line(program.into_iter().chain(others).chain(file).collect::<Vec<_>>().join(", "));
    Some(page)
}

/// The page tidegate.toml(5), in roff.
pub(super) fn configuration() -> String {
    let mut page = format!(
        ".TH tidegate.toml 5\n.SH NAME\ntidegate.toml \\- configuration files of tidegate serve, mount and run\n.SH DESCRIPTION\n{}\n.SH \"KEYS OF SERVE\"\n",
        literal(config_keys::INTRODUCTION)
    );
    for part in config_keys::parts(config::EXAMPLE) {
        page += &match part {
            Part::Text(about) => format!("{}\n", literal(&about)),
            Part::Table(head, about) => format!(".SS {}\n{}\n", literal(head), literal(&about)),
            Part::Key(Key { name, value, meaning }) => {
                format!(".TP\n\\fB{}\\fR = {}\n{}\n", literal(name), literal(value), literal(&meaning))
            }
        };
    }
    let heads = [
        (".SH \"KEYS OF MOUNT: [[mount]]\"\n", config_keys::of_mount()),
        (".SH \"KEYS OF RUN\"\n", config_keys::of_run()),
    ];
    for (head, keys) in heads {
        page += head;
        for (name, meaning) in keys {
            page += &format!(".TP\n\\fB{}\\fR\n{}\n", literal(&name), literal(&meaning));
        }
    }
    let example = |text: &str| text.lines().map(|line| format!("{}\n", literal(line))).collect::<String>();
    let (of_serve, of_mount) = (example(config::EXAMPLE), example(mount_config::EXAMPLE));
    page + &format!(
        ".SH EXAMPLES\nA file for tidegate\\-serve(1) with every key:\n.PP\n.nf\n{of_serve}.fi\n.PP\nA file for tidegate\\-mount(1) with every key:\n.PP\n.nf\n{of_mount}.fi\n.SH \"SEE ALSO\"\ntidegate\\-serve(1), tidegate\\-mount(1), tidegate\\-run(1)\n"
    )
}

/// A line that roff shows as it is.
fn literal(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('~', "\\(ti");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::Program;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_its_sections_and_every_reference_leads_somewhere() {
        let program = Program::command();
        let mut names: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
        names.push("tidegate");
        names.iter().for_each(|name| assert!(of(name).is_some(), "nothing about {name}"));
        for (command, see) in SEE {
            assert!(names.contains(command) && !examples(command).is_empty() && !see.is_empty(), "{command}");
            assert!(see.iter().all(|other| names.contains(other) && other != command), "{command}: {see:?}");
        }
    }
}

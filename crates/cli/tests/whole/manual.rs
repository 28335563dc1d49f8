//! Manual pages and completions, compared with what `--help` says.

use crate::program::{Folder, run};
use std::collections::BTreeSet;
use std::fs;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Every command, as the program's own help lists them.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).stdout;
    let listed = help.lines().skip_while(|line| *line != "Volumes:").take_while(|line| *line != "Options:");
    let names = listed.filter_map(|line| line.strip_prefix("  ")).filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(
        names.len() >= 20 && ["serve", "run", "help"].iter().all(|name| names.iter().any(|of| of == name)),
        "{help}"
    );
    names
}

/// Every long flag that a command's help shows.
fn flags(command: &str) -> BTreeSet<String> {
    let help = run(&[command, "--help"]).stdout;
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = options.flat_map(|line| line.split([' ', ',', '[']).take(3)).filter(|word| word.starts_with("--"));
    words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-').to_owned()).collect()
}

#[test]
fn each_command_has_a_page_that_names_its_flags() {
    let folder = Folder::new();
    let out = folder.text("man");
    assert_eq!(run(&["man", "--out", &out]).code, 0);
    for command in commands() {
        let page = fs::read_to_string(format!("{out}/tidegate-{command}.1")).unwrap().replace("\\-", "-");
        let flags = flags(&command);
        assert!(flags.contains("--json") && flags.contains("--help"), "{flags:?}");
        for flag in flags {
            assert!(page.contains(&flag), "{command}: no {flag} in:\n{page}");
        }
        for section in [".SH EXAMPLES", ".SH FILES", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""] {
            assert_eq!(page.matches(section).count(), 1, "{command}: {section} in:\n{page}");
        }
    }
    let program = fs::read_to_string(format!("{out}/tidegate.1")).unwrap();
    assert!(program.contains("EXIT STATUS") && program.contains("second signal"), "{program}");
    let serve = fs::read_to_string(format!("{out}/tidegate-serve.1")).unwrap();
    assert!(serve.contains("tidegate.toml(5)"), "{serve}");
    let keys = fs::read_to_string(format!("{out}/tidegate.toml.5")).unwrap();
    for key in ["[[volume]]", "pmem = ", "allow_uids", "connections_max", "metrics", "root"] {
        assert!(keys.contains(key), "no {key} in:\n{keys}");
    }
    let pages = fs::read_dir(&out).unwrap().count();
    assert_eq!(pages, commands().len() + 2);
}

#[test]
fn completions_know_every_command_and_flag() {
    for shell in SHELLS {
        let script = run(&["completions", shell]);
        assert_eq!(script.code, 0, "{}", script.stderr);
        for command in commands() {
            assert!(script.stdout.contains(&command), "{shell}: {command}");
            for flag in flags(&command) {
                let written = if shell == "fish" { format!("-l {}", flag.trim_start_matches('-')) } else { flag };
                assert!(script.stdout.contains(&written), "{shell}: {command} {written}");
            }
        }
    }
    assert_eq!(run(&["completions", "tcl"]).code, 2);
}

/// What bash offers behind these words, the last of which is begun.
fn offered(words: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    fs::write(folder.path("completions"), run(&["completions", "bash"]).stdout).unwrap();
    fs::create_dir(folder.path("folder")).unwrap();
    fs::write(folder.path("file"), "").unwrap();
    let [.., before, last] = words else { panic!("{words:?}") };
    let script = format!(
        "cd {}; source completions; COMP_WORDS=({}); COMP_CWORD={}; _tidegate tidegate '{last}' '{before}' 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        folder.text(""),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1
    );
    let mut offered: Vec<_> = crate::program::peer("bash", &["-c", &script]).lines().map(str::to_owned).collect();
    offered.sort();
    offered
}

/// Commands, what comes before a value, and the values.
const VALUES: [(&str, &str, &[&str]); 10] = [
    ("create", "--block", &["512", "520", "528", "4096", "4104", "4160", "4224"]),
    ("create", "--btt", &["1.1", "2.0"]),
    ("serve", "--emulate", &["nvdimm", "stt-ram", "pcm", "optane", "cxl"]),
    ("serve", "--write-cache", &["auto", "off"]),
    ("serve", "--socket-mode", &["0600", "0660", "0666"]),
    (
        "serve",
        "--disk-mode",
        &["write-back", "write-through", "write-around", "write-only", "pass-through", "read-only"],
    ),
    ("serve", "--replacement", &["lru", "clock", "sieve", "2q", "s3-fifo"]),
    ("serve", "--read-admission", &["always", "never", "second-miss"]),
    ("mode", "", &["write-back", "write-through", "write-around", "write-only", "pass-through", "read-only"]),
    ("completions", "", &["bash", "elvish", "fish", "powershell", "zsh"]),
];

#[test]
fn bash_completes_flags_values_files_and_folders() {
    assert_eq!(offered(&["tidegate", "serve", "--conf"]), ["--config"]);
    for (command, flag, values) in VALUES.iter().filter(|(_, flag, _)| !flag.is_empty()) {
        let mut expected = values.to_vec();
        expected.sort_unstable();
        assert_eq!(offered(&["tidegate", command, flag, ""]), expected, "{command} {flag}");
    }
    assert_eq!(offered(&["tidegate", "serve", "--disk-mode", "write-t"]), ["write-through"]);
    let modes = offered(&["tidegate", "mode", "pass"]);
    assert!(modes.contains(&"pass-through".to_owned()), "{modes:?}");
    assert_eq!(offered(&["tidegate", "serve", "--config", "f"]), ["file", "folder"]);
    // Folders are added by bash itself, which is asked to.
    let script = run(&["completions", "bash"]).stdout;
    let root = script.split("--root)").nth(1).and_then(|after| after.split(";;").next()).unwrap();
    assert!(root.contains("-o plusdirs") && !root.contains("compgen -f"), "{root}");
}

#[test]
fn the_scripts_of_zsh_and_fish_have_the_values_and_tell_files_from_folders() {
    let [zsh, fish] = ["zsh", "fish"].map(|shell| run(&["completions", shell]).stdout);
    for (command, flag, values) in VALUES {
        let listed = format!("({})", values.join(" "));
        assert!(zsh.lines().any(|line| line.contains(flag) && line.contains(&listed)), "zsh: {command} {flag}: {zsh}");
        let of_command = |line: &&str| line.contains(&format!("__fish_tidegate_using_subcommand {command}\""));
        let of_flag = |line: &&str| match flag.strip_prefix("--") {
            Some(name) => line.contains(&format!(" -l {name} ")),
            None => line.contains(" -f -a \"") && !line.contains(" -l "),
        };
        // A flag's values are a line each.
        let offer = fish.find("complete -c tidegate").map(|at| &fish[at..]).unwrap();
        let offer = offer.split("complete -c tidegate").find(|offer| {
            let line = offer.lines().next().unwrap_or_default();
            of_command(&line) && of_flag(&line)
        });
        let offer = offer.unwrap_or_else(|| panic!("fish: {command} {flag}: {fish}"));
        assert!(values.iter().all(|value| offer.contains(value)), "fish: {command} {flag}: {offer}");
    }
    let is_files = |line: &&str| line.contains("--config") && line.contains("_files") && !line.contains("_files -/");
    assert!(zsh.lines().any(|line| is_files(&line)), "{zsh}");
    assert!(zsh.lines().any(|line| line.contains("--root") && line.contains("_files -/")), "{zsh}");
    assert!(fish.lines().any(|line| line.contains("-l root") && line.contains("complete_directories")), "{fish}");
    assert!(fish.lines().any(|line| line.contains("-l config") && line.contains("-F")), "{fish}");
}

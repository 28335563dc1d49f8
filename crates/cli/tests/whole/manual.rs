//! Manual pages and completions, compared with what `--help` says.

use crate::program::{Folder, run};
use std::collections::BTreeSet;
use std::fs;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Every command, as the program's own help lists them.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    let names: Vec<_> = names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert!(names.len() >= 8 && names.iter().any(|name| name == "serve"), "{help}");
    names.into_iter().filter(|name| name != "help").collect()
}

/// Every long flag that a command's help shows.
fn flags(command: &str) -> BTreeSet<String> {
    let help = run(&[command, "--help"]).stdout;
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = options.flat_map(|line| line.split([' ', ',']).take(3)).filter(|word| word.starts_with("--"));
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
    }
    let program = fs::read_to_string(format!("{out}/tidegate.1")).unwrap();
    assert!(program.contains("EXIT STATUS") && program.contains("second signal"), "{program}");
    let serve = fs::read_to_string(format!("{out}/tidegate-serve.1")).unwrap();
    for key in ["[[volume]]", "pmem = ", "allow_uids", "connections_max", "metrics"] {
        assert!(serve.replace("\\-", "-").contains(key), "no {key} in:\n{serve}");
    }
    let pages = fs::read_dir(&out).unwrap().count();
    assert_eq!(pages, commands().len() + 1);
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

#[test]
fn bash_accepts_its_completions() {
    let folder = Folder::new();
    let script = folder.text("tidegate.bash");
    fs::write(&script, run(&["completions", "bash"]).stdout).unwrap();
    let completed = crate::program::peer(
        "bash",
        &[
            "-c",
            &format!(
                "source {script}; COMP_WORDS=(tidegate serve --conf); COMP_CWORD=2; _tidegate tidegate --conf serve; echo \"${{COMPREPLY[@]}}\""
            ),
        ],
    );
    assert_eq!(completed.trim(), "--config");
}

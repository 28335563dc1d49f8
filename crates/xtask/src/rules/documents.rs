//! Documents lead to what is there, and no file names the machine it was written on.

use crate::markdown::resolved;
use crate::source::Finding;
use crate::workspace::Text;

/// Paths of single machines, cut in two so that this file does not break its own rule.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/tmp/", "target")];

/// Links and paths in a Markdown file that lead to nothing in the repository.
pub(crate) fn dead_ends(text: &Text, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in text.text.lines().enumerate().filter(|_| text.path.ends_with(".md")) {
        let dead = targets(&text.path, line).into_iter().filter(|target| !exists(target));
        found.extend(dead.map(|target| Finding {
            file: text.path.clone(),
            line: index + 1,
            rule: "dead-end",
            advice: format!("`{target}` is not in the repository: correct the path"),
        }));
    }
    found
}

/// Paths from the root of the repository that a line of the document at `path` leads to: the
/// targets of its relative links, and what stands in backticks and begins with `crates/` or
/// `docs/`.
fn targets(path: &str, line: &str) -> Vec<String> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |word: &&str| {
        ["crates/", "docs/"].iter().any(|start| word.starts_with(start)) && !word.contains([' ', '*', '<'])
    };
    links.map(|link| resolved(path, link)).chain(quoted.filter(is_path).map(str::to_owned)).collect()
}

/// Lines that name a path of one machine.
pub(crate) fn machine_paths(text: &Text) -> Vec<Finding> {
    let lines = text.text.lines().enumerate().filter(|(_, line)| MACHINE_PATHS.iter().any(|path| names(line, path)));
    lines
        .map(|(index, _)| Finding {
            file: text.path.clone(),
            line: index + 1,
            rule: "machine-path",
            advice: "name a path that every machine has, or a variable".to_owned(),
        })
        .collect()
}

/// Whether `line` holds `path` as the beginning of a path, not in the midst of one.
fn names(line: &str, path: &str) -> bool {
    let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-./}$".contains(c));
    line.match_indices(path).any(|(at, _)| begins(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_ends_are_found() {
        let exists = |target: &str| ["docs/a.md", "crates/x/src"].contains(&target);
        let found = |path: &str, text: &str| dead_ends(&Text { path: path.into(), text: text.into() }, exists).len();
        assert_eq!(found("docs/decisions/1.md", "see [a](../a.md#x), `crates/x/src`, [web](https://a.b/c)"), 0);
        assert_eq!(found("README.md", "[a](docs/a.md), [b](docs/b.md) and `crates/y/src`"), 2);
        assert_eq!(found("crates/x/src/lib.rs", "[b](docs/b.md)"), 0);
    }

    #[test]
    fn machine_paths_are_found() {
        let found = |text: String| machine_paths(&Text { path: "README.md".into(), text }).len();
        assert_eq!(found(format!("see {}shared", MACHINE_PATHS[0])), 1);
        assert_eq!(found(format!("x\n\"{}-a\"\n", MACHINE_PATHS[1])), 1);
        assert_eq!(found(format!("guest{}x and /var/tmp", MACHINE_PATHS[0])), 0);
    }
}

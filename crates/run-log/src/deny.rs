//! Files that are never held, by pattern.

use std::path::Path;

/// Patterns over whole paths or over the last part of them.
#[derive(Debug, Default)]
pub(super) struct Denied {
    patterns: Vec<String>,
}

impl Denied {
    /// `patterns`: `*` stands for any letters but `/`, `**` for any, `?` for one but `/`. A pattern
    /// without `/` is about names, one with it about paths.
    pub(super) fn new(patterns: &[String]) -> Denied {
        Denied { patterns: patterns.to_vec() }
    }

    /// Whether one of them fits `path`.
    pub(super) fn has(&self, path: &Path) -> bool {
        let whole = path.to_string_lossy();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.patterns.iter().any(|pattern| {
            let text = if pattern.contains('/') { &whole } else { &name };
            fits(pattern.as_bytes(), text.as_bytes())
        })
    }
}

fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=text.len()).any(|from| fits(rest, &text[from..])),
        [b'*', rest @ ..] => {
            let reach = text.iter().position(|letter| *letter == b'/').unwrap_or(text.len());
            (0..=reach).any(|from| fits(rest, &text[from..]))
        }
        [b'?', rest @ ..] => text.split_first().is_some_and(|(first, text)| *first != b'/' && fits(rest, text)),
        [letter, rest @ ..] => text.split_first().is_some_and(|(first, text)| first == letter && fits(rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(pattern: &str, path: &str) -> bool {
        Denied::new(&[pattern.to_owned()]).has(Path::new(path))
    }

    #[test]
    fn patterns_without_a_slash_are_about_names() {
        assert!(denied("*.log", "/a/b/c.log") && denied("c.???", "/a/b/c.log") && denied("c.log", "/a/c.log"));
        assert!(!denied("*.log", "/a/b.log/c") && !denied("?.log", "/a/cc.log"));
    }

    #[test]
    fn patterns_with_a_slash_are_about_paths() {
        assert!(denied("/a/*/c", "/a/b/c") && denied("/a/**", "/a/b/c") && denied("**/b/*", "/a/b/c"));
        assert!(!denied("/a/*", "/a/b/c") && !denied("/b/**", "/a/b/c"));
    }
}

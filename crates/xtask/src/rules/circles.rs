//! Modules of a crate import each other without a circle, so that each can be read after those it
//! stands on.
//!
//! A module is a file. Imports and paths that begin with `crate`, `super` or `self` count; a name
//! that is re-exported counts for the module it comes from. Two things are apart: tests, and
//! children that use a module above them.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::{SourceFile, Token};
use crate::workspace::{Crate, Workspace};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most re-exports that are followed to where a name comes from.
const REEXPORTS_MAX: usize = 8;

/// A module as its path from the crate's root, which is empty.
type Module = Vec<String>;

/// Modules in circles, counted by crate.
pub(crate) fn circles(workspace: &Workspace, _: &Layers) -> Vec<Measured> {
    workspace.crates.iter().flat_map(|krate| of_crate(krate, &workspace.sources)).collect()
}

fn of_crate(krate: &Crate, sources: &[SourceFile]) -> Vec<Measured> {
    let graph = Graph::of(krate, sources);
    let circles = graph.files.keys().filter_map(|module| Some((module, graph.shortest_circle(module)?)));
    circles
        .map(|(module, circle)| Measured {
            file: graph.files[module].path.clone(),
            line: 1,
            rule: "circle",
            place: krate.name.clone(),
            item: String::new(),
            size: 1,
            advice: format!("imports in a circle: {}: let one of them be handed what it needs", shown(&circle)),
        })
        .collect()
}

fn shown(circle: &[&Module]) -> String {
    circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" → ")
}

/// The modules of a crate and what each imports.
struct Graph<'a> {
    files: BTreeMap<Module, &'a SourceFile>,
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl<'a> Graph<'a> {
    fn of(krate: &Crate, sources: &'a [SourceFile]) -> Graph<'a> {
        let of_crate = sources.iter().filter(|file| file.krate == krate.name && !file.tests_only);
        let files = of_crate.filter_map(|file| Some((module_of(&krate.folder, &file.path)?, file))).collect();
        let mut graph = Graph { files, edges: BTreeMap::new() };
        graph.edges = graph.files.iter().map(|(module, file)| (module.clone(), graph.imported(module, file))).collect();
        graph
    }

    /// The modules that `module` imports, without those above it. The root, which is above all,
    /// imports none.
    fn imported(&self, module: &Module, file: &SourceFile) -> BTreeSet<Module> {
        let imports = file.imports.iter().filter(|import| !file.is_test(import.line));
        let imports = imports.map(|import| import.path.clone());
        let paths = imports.chain(qualified(file));
        let targets = paths.filter_map(|path| self.resolve(module, &path, REEXPORTS_MAX));
        targets.filter(|target| target != module && !module.starts_with(target) && !module.is_empty()).collect()
    }

    /// The module that defines what `path` means in `module`; `None` if that is in another crate.
    fn resolve(&self, module: &Module, path: &[String], reexports: usize) -> Option<Module> {
        let absolute = self.absolute(module, path)?;
        let known = (0..=absolute.len()).rev().find(|end| self.files.contains_key(&absolute[..*end]))?;
        let (owner, rest) = (absolute[..known].to_vec(), &absolute[known..]);
        let Some(name) = rest.first() else { return Some(owner) };
        let reexport = self.files[&owner].imports.iter().find(|import| {
            import.path.last() == Some(name)
                && import.path.first() != Some(name)
                && !self.files[&owner].is_test(import.line)
        });
        match reexport {
            Some(import) if reexports > 0 => self.resolve(&owner, &import.path, reexports - 1).or(Some(owner)),
            _ => Some(owner),
        }
    }

    /// `path` from the crate's root; `None` if it leads to another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut base = module.clone();
        let mut rest = path;
        match path.first().map(String::as_str)? {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {}
            child => {
                base.push(child.to_owned());
                return self.files.contains_key(&base).then(|| [module, path].concat());
            }
        }
        while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
            base.pop();
            rest = after;
        }
        Some([&base, rest].concat())
    }

    /// The shortest way from `module` over its imports back to it.
    fn shortest_circle(&self, module: &Module) -> Option<Vec<&Module>> {
        let (start, _) = self.edges.get_key_value(module)?;
        let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(here) = queue.pop_front() {
            for next in &self.edges[here] {
                if came_from.contains_key(next) {
                    continue;
                }
                came_from.insert(next, here);
                if next == start {
                    return Some(way_back(&came_from, start));
                }
                queue.push_back(next);
            }
        }
        None
    }
}

/// The circle that ends at `start`, from `start` to `start`.
fn way_back<'a>(came_from: &BTreeMap<&'a Module, &'a Module>, start: &'a Module) -> Vec<&'a Module> {
    let mut way = vec![start, came_from[start]];
    while way[way.len() - 1] != start {
        way.push(came_from[way[way.len() - 1]]);
    }
    way.reverse();
    way
}

/// The module of the file at `path`; `None` for programs beside a library, tests and examples.
fn module_of(folder: &str, path: &str) -> Option<Module> {
    let inner = path.strip_prefix(folder)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    let mut module: Module = inner.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod")) || ["lib", "main"].contains(&inner) {
        module.pop();
    }
    (module.first().map(String::as_str) != Some("bin")).then_some(module)
}

/// Paths in expressions and types that begin at `crate`, `super` or `self`; imports are apart.
fn qualified(file: &SourceFile) -> Vec<Module> {
    let tokens = &file.tokens;
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text.as_str());
    let separated = |at: usize| text(at) == ":" && text(at + 1) == ":";
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !["crate", "super", "self"].contains(&text(at)) || file.is_test(token.line) || !separated(at + 1) {
            continue;
        }
        let mut path = vec![text(at).to_owned()];
        let mut next = at + 1;
        while separated(next) && text(next + 2).starts_with(|c: char| c.is_alphabetic() || c == '_') {
            path.push(text(next + 2).to_owned());
            next += 3;
        }
        if !separated(next) && text(at.wrapping_sub(1)) != ":" {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn in_circles(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(name, text)| sample(&format!("crates/a/src/{name}"), text)).collect();
        let krate = Crate { name: "a".into(), folder: "crates/a".into(), manifest: toml::Table::new() };
        of_crate(&krate, &sources).into_iter().map(|measured| measured.advice).collect()
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let root = ("lib.rs", "mod b; mod c; mod d;");
        let found =
            in_circles(&[root, ("b.rs", "use crate::c::C;"), ("c.rs", "use super::d;"), ("d.rs", "use crate::b::f;")]);
        assert_eq!(found.len(), 3);
        assert!(found[0].contains("b → c → d → b"), "{found:?}");
        let found = in_circles(&[root, ("b.rs", "use crate::c::C;"), ("c.rs", "fn f() -> crate::b::B { g() }")]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_name_counts_for_the_module_it_comes_from() {
        let root = ("lib.rs", "mod b; mod c; pub use c::C;");
        assert_eq!(in_circles(&[root, ("b.rs", "use crate::C;"), ("c.rs", "use crate::b::{B, D};")]).len(), 2);
    }

    #[test]
    fn what_is_no_circle_is_accepted() {
        let root = ("lib.rs", "mod b; mod c; use b::B;");
        assert_eq!(in_circles(&[root, ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::other;")]), [""; 0]);
        let child = ("b/inner.rs", "use super::B;");
        assert_eq!(in_circles(&[root, ("b.rs", "mod inner; use inner::I; use crate::c::C;"), child]), [""; 0]);
        let upward = ("c.rs", "use crate::b::B;");
        assert_eq!(
            in_circles(&[root, ("b.rs", "mod inner; use inner::I;"), ("b/inner.rs", "use crate::c;"), upward]).len(),
            3
        );
        let tested = ("c.rs", "#[cfg(test)]\nmod tests {\nuse crate::b::B;\n}");
        assert_eq!(in_circles(&[root, ("b.rs", "use crate::c::C; use std::b;"), tested]), [""; 0]);
    }
}

//! How far a reader follows a call from file to file, as a report: no rule judges it.
//!
//! A chain is a row of functions of one crate, each called by the one before it. It *stays* in a
//! file for as long as its functions follow each other there; it *returns* when it enters a file
//! that it had left. The report shows each crate's chain with the most stays.
//!
//! A call is followed if its name leads to one function: by its type, by its module, or because the
//! crate has one function of that name. A method that the standard library has as well is followed
//! on `self` alone. A call back to a function of the chain ends it.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::{SourceFile, only_for_tests};
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use syn::visit::Visit;

/// Methods of the standard library whose names say nothing about the type.
const STANDARD: [&str; 38] = [
    "all", "any", "as_ref", "clear", "clone", "contains", "drain", "entry", "extend", "fill", "find", "first", "flush",
    "get", "insert", "is_empty", "iter", "join", "last", "len", "lines", "load", "lock", "map", "next", "parse", "pop",
    "push", "read", "recv", "remove", "send", "store", "swap", "take", "wait", "with", "write",
];

/// The chain with the most stays, for each product crate with a call between files.
pub(crate) fn chains(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let product = workspace.crates.iter().filter(|krate| layers.is_product(&krate.name));
    product.filter_map(|krate| of_crate(&krate.name, &workspace.sources)).collect()
}

fn of_crate(krate: &str, sources: &[SourceFile]) -> Option<Measured> {
    let calls =
        Calls::of(sources.iter().filter(|file| file.krate == krate && file.path.contains("/src/") && !file.tests_only));
    let chain = calls.longest();
    let files: Vec<_> = chain.iter().map(|at| calls.functions[*at].file).collect();
    let mut stays = files.clone();
    stays.dedup();
    let returns = (0..stays.len()).filter(|at| stays[..*at].contains(&stays[*at])).count();
    let first = &calls.functions[*chain.first()?];
    (stays.len() > 1).then(|| Measured {
        file: calls.files[first.file].path.clone(),
        line: first.line,
        rule: "call-chain",
        place: krate.to_owned(),
        item: String::new(),
        size: stays.len(),
        advice: format!("{} stays, {returns} returns: {}", stays.len(), calls.shown(&chain)),
    })
}

/// A function, and the calls in it.
struct Function {
    file: usize,
    line: usize,
    name: String,
    /// The type or the trait that it belongs to.
    owner: Option<String>,
    calls: Vec<Call>,
}

/// A call as it is written.
struct Call {
    name: String,
    /// The type or module before the name; `self` before a method.
    of: Option<String>,
    is_method: bool,
}

/// The functions of a crate, and which calls which.
struct Calls<'a> {
    files: Vec<&'a SourceFile>,
    functions: Vec<Function>,
    edges: Vec<Vec<usize>>,
}

impl<'a> Calls<'a> {
    fn of(files: impl Iterator<Item = &'a SourceFile>) -> Calls<'a> {
        let mut calls = Calls { files: files.collect(), functions: Vec::new(), edges: Vec::new() };
        for (file, source) in calls.files.iter().enumerate() {
            let mut found = Functions { source, file, owner: None, found: Vec::new() };
            found.visit_file(&source.syntax);
            calls.functions.extend(found.found);
        }
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        calls.functions.iter().enumerate().for_each(|(at, f)| by_name.entry(&f.name).or_default().push(at));
        calls.edges = calls.functions.iter().map(|function| calls.called_by(function, &by_name)).collect();
        calls
    }

    fn called_by(&self, caller: &Function, by_name: &BTreeMap<&str, Vec<usize>>) -> Vec<usize> {
        let target = |call: &Call| self.target(caller, call, by_name.get(call.name.as_str())?);
        caller.calls.iter().filter_map(target).collect()
    }

    /// The one function of `named` that `call` in `caller` can mean.
    fn target(&self, caller: &Function, call: &Call, named: &[usize]) -> Option<usize> {
        let only = |fits: &dyn Fn(&Function) -> bool| {
            let mut fitting = named.iter().filter(|at| fits(&self.functions[**at]));
            fitting.next().filter(|_| fitting.next().is_none()).copied()
        };
        match call.of.as_deref() {
            Some("self" | "Self") => only(&|f| f.owner.is_some() && f.owner == caller.owner),
            Some(of) if of.starts_with(char::is_uppercase) => only(&|f| f.owner.as_deref() == Some(of)),
            Some("crate" | "super") => only(&|f| f.owner.is_none()),
            Some(of) => only(&|f| f.owner.is_none() && self.files[f.file].path.ends_with(&format!("/{of}.rs"))),
            None if call.is_method && STANDARD.contains(&call.name.as_str()) => None,
            None if call.is_method => only(&|f| f.owner.is_some()),
            None => only(&|f| f.owner.is_none() && f.file == caller.file).or_else(|| only(&|f| f.owner.is_none())),
        }
    }

    /// The functions of the chain with the most stays.
    fn longest(&self) -> Vec<usize> {
        let mut walk = Walk { calls: self, state: vec![State::New; self.functions.len()] };
        let starts = (0..self.functions.len()).map(|at| (walk.moves_from(at), at)).collect::<Vec<_>>();
        let Some((_, start)) = starts.into_iter().rev().max_by_key(|(moves, _)| *moves) else { return Vec::new() };
        let mut chain = vec![start];
        while let State::Done { next: Some(next), .. } = walk.state[chain[chain.len() - 1]] {
            chain.push(next);
        }
        chain
    }

    fn shown(&self, chain: &[usize]) -> String {
        let mut text = String::new();
        let mut file = None;
        for function in chain.iter().map(|at| &self.functions[*at]) {
            let path = &self.files[function.file].path;
            let short = path.split_once("/src/").map_or(path.as_str(), |(_, inner)| inner);
            match file.replace(function.file) {
                Some(before) if before == function.file => text.push_str(&format!(", {}", function.name)),
                Some(_) => text.push_str(&format!(" → {short} {}", function.name)),
                None => text.push_str(&format!("{short} {}", function.name)),
            }
        }
        text
    }
}

#[derive(Clone, Copy)]
enum State {
    New,
    UnderWay,
    /// The most moves to another file from here on, and the call that leads to them.
    Done {
        moves: usize,
        next: Option<usize>,
    },
}

struct Walk<'a> {
    calls: &'a Calls<'a>,
    state: Vec<State>,
}

impl Walk<'_> {
    /// The most moves to another file on a chain that begins at `function`.
    fn moves_from(&mut self, function: usize) -> usize {
        match self.state[function] {
            State::Done { moves, .. } => return moves,
            State::UnderWay => return 0,
            State::New => self.state[function] = State::UnderWay,
        }
        let mut best = (0, None);
        for &next in &self.calls.edges[function] {
            if matches!(self.state[next], State::UnderWay) {
                continue;
            }
            let moved = self.calls.functions[next].file != self.calls.functions[function].file;
            let moves = self.moves_from(next) + usize::from(moved);
            if moves > best.0 {
                best = (moves, Some(next));
            }
        }
        self.state[function] = State::Done { moves: best.0, next: best.1 };
        best.0
    }
}

/// The functions of a file.
struct Functions<'a> {
    source: &'a SourceFile,
    file: usize,
    owner: Option<String>,
    found: Vec<Function>,
}

impl Functions<'_> {
    fn function(&mut self, name: &syn::Ident, body: &syn::Block) {
        let line = name.span().start().line;
        if !self.source.is_test(line) {
            let mut calls = CallsIn(Vec::new());
            calls.visit_block(body);
            let (file, owner) = (self.file, self.owner.clone());
            self.found.push(Function { file, line, name: name.to_string(), owner, calls: calls.0 });
        }
    }

    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(None, |functions| functions.function(&item.sig.ident, &item.block));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !only_for_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner, |functions| syn::visit::visit_item_impl(functions, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(Some(item.ident.to_string()), |functions| syn::visit::visit_item_trait(functions, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig.ident, body);
        }
    }
}

/// The calls in a function's body.
struct CallsIn(Vec<Call>);

impl<'ast> Visit<'ast> for CallsIn {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func {
            let mut segments = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
            if let Some(name) = segments.next() {
                self.0.push(Call { name, of: segments.next(), is_method: false });
            }
        }
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let on_self = matches!(&*call.receiver, syn::Expr::Path(path) if path.path.is_ident("self"));
        let of = on_self.then(|| "self".to_owned());
        self.0.push(Call { name: call.method.to_string(), of, is_method: true });
        syn::visit::visit_expr_method_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn found(files: &[(&str, &str)]) -> Option<String> {
        let sources: Vec<_> = files.iter().map(|(name, text)| sample(&format!("crates/a/src/{name}"), text)).collect();
        of_crate("a", &sources).map(|measured| measured.advice)
    }

    #[test]
    fn a_chain_that_comes_back_is_found() {
        let files = [
            ("x.rs", "fn f() { inner() } fn inner() { y::g() } fn back() { z::end() }"),
            ("y.rs", "pub fn g() { T::make(); } impl T { fn make() { super::back() } }"),
            ("z.rs", "pub fn end() {}"),
        ];
        let chain = "4 stays, 1 returns: x.rs f, inner → y.rs g, make → x.rs back → z.rs end";
        assert_eq!(found(&files).as_deref(), Some(chain));
    }

    #[test]
    fn methods_are_followed_where_their_name_leads_to_one() {
        let to = |text| found(&[("x.rs", "fn f(t: &T) { t.go(); t.len() }"), ("y.rs", text)]);
        assert_eq!(to("impl T { fn go(&self) {} }").as_deref(), Some("2 stays, 0 returns: x.rs f → y.rs go"));
        assert_eq!(to("impl T { fn go(&self) {} } impl U { fn go(&self) {} }"), None);
        assert_eq!(to("impl T { fn len(&self) {} }"), None);
        assert_eq!(to("fn go() {}"), None);
    }

    #[test]
    fn recursion_ends_and_tests_do_not_count() {
        let files = [("x.rs", "fn f() { y::g() }"), ("y.rs", "fn g() { x::f() }")];
        assert_eq!(found(&files).as_deref(), Some("2 stays, 0 returns: x.rs f → y.rs g"));
        let tested = [("x.rs", "#[cfg(test)] mod tests { fn f() { y::g() } }"), ("y.rs", "fn g() {}")];
        assert_eq!(found(&tested), None);
    }
}

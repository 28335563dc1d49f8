//! Tests use the client that ships. What they would find in a second one says nothing about it.
//!
//! Two things make a client of a protocol:
//!
//! - It tells replies from other bytes. So a reply's magic number stands in the protocol's crate
//!   and in the one client for tests alone, which reads the specification by itself.
//! - It sends requests and changes memory that it shares with the server. So test code does not
//!   import both from a crate that describes such memory. One request to a server is no client.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use crate::workspace::Workspace;
use std::collections::BTreeSet;

/// Protocols over sockets: the crate, the file of its numbers, and the client for tests.
const SOCKETS: [(&str, &str, &str); 1] = [("nbd", "crates/nbd/src/wire.rs", "nbd-client")];
/// Endings of the names of a reply's magic numbers.
const REPLIES: [&str; 2] = ["REPLY_MAGIC", "CHUNK_MAGIC"];
/// Crates that describe requests together with shared memory.
const SHARED: [&str; 1] = ["file-wire"];
/// What a crate of those calls its requests.
const REQUEST: &str = "Request";

/// Clients beside those that ship.
pub(crate) fn second(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut found = Vec::new();
    for (protocol, numbers, client) in SOCKETS {
        let magic = magic_numbers(workspace, numbers);
        let others = workspace.sources.iter().filter(|file| file.krate != protocol && file.krate != client);
        found.extend(others.filter_map(|file| Some((file, reader(file, &magic)?))));
    }
    let tests = |file: &&SourceFile| file.tests_only || !layers.is_product(&file.krate);
    found.extend(workspace.sources.iter().filter(tests).filter_map(|file| Some((file, writer(file)?))));
    found.into_iter().map(|(file, line)| measured(file, line)).collect()
}

/// The values of a reply's magic numbers that the file at `path` declares.
fn magic_numbers(workspace: &Workspace, path: &str) -> BTreeSet<u128> {
    let items = workspace.sources.iter().filter(|file| file.path == path).flat_map(|file| &file.syntax.items);
    let of_replies = items.filter_map(|item| match item {
        syn::Item::Const(item) if REPLIES.iter().any(|ending| item.ident.to_string().ends_with(ending)) => {
            match &*item.expr {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => number.base10_parse().ok(),
                _ => None,
            }
        }
        _ => None,
    });
    of_replies.collect()
}

/// The first line of `file` with one of the numbers.
fn reader(file: &SourceFile, magic: &BTreeSet<u128>) -> Option<usize> {
    let number = |text: &str| syn::parse_str::<syn::LitInt>(text).ok()?.base10_parse::<u128>().ok();
    let is_magic = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit()) && number(text).is_some_and(|number| magic.contains(&number))
    };
    file.tokens.iter().find(|token| is_magic(&token.text)).map(|token| token.line)
}

/// The line at which `file` imports requests, if it imports places of shared memory beside them.
fn writer(file: &SourceFile) -> Option<usize> {
    SHARED.iter().find_map(|wire| {
        let package = format!("tidegate_{}", wire.replace('-', "_"));
        let names = file.imports.iter().filter(|import| file.krate != *wire && import.path.first() == Some(&package));
        let names: Vec<_> = names.filter_map(|import| Some((import.path.last()?, import.line))).collect();
        let shares = names.iter().any(|(name, _)| name.ends_with("_at"));
        names.iter().find(|(name, _)| shares && *name == REQUEST).map(|(_, line)| *line)
    })
}

fn measured(file: &SourceFile, line: usize) -> Measured {
    Measured {
        file: file.path.clone(),
        line,
        rule: "second-client",
        place: file.krate.clone(),
        item: String::new(),
        size: 1,
        advice: "a client of its own: test the one that ships".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    const TABLE: &str = "| crate | layer | is | may use |\n| `nbd` | L3 | n | — |\n| `file-service` | L4 | f | — |";
    const NUMBERS: &str = "const REQUEST_MAGIC: u32 = 0x2560_9513; const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;";

    fn found(path: &str, text: &str) -> usize {
        let layers = Layers::parse(TABLE).expect("the sample has a table");
        let sources = vec![sample("crates/nbd/src/wire.rs", NUMBERS), sample(path, text)];
        second(&Workspace { crates: Vec::new(), sources, texts: Vec::new() }, &layers).len()
    }

    #[test]
    fn a_second_reader_of_replies_is_found() {
        let text = "fn f(reply: u32) -> bool { reply == 0x67446698_u32 }";
        assert_eq!((found("crates/bench/src/x.rs", text), found("crates/cli/tests/x.rs", text)), (1, 1));
        assert_eq!((found("crates/nbd/tests/x.rs", text), found("crates/nbd-client/src/x.rs", text)), (0, 0));
        let hostile = "fn f() { send(0x2560_9513_u32.to_be_bytes()) }";
        assert_eq!(found("crates/cli/tests/x.rs", hostile), 0);
    }

    #[test]
    fn a_second_writer_of_shared_memory_is_found() {
        let text = "use tidegate_file_wire::{Request, Row, notes::bits_at};";
        assert_eq!((found("crates/file-service/tests/x.rs", text), found("crates/crashcheck/src/x.rs", text)), (1, 1));
        assert_eq!((found("crates/file-service/src/x.rs", text), found("crates/file-wire/tests/x.rs", text)), (0, 0));
        assert_eq!(found("crates/file-service/tests/x.rs", "use tidegate_file_wire::{Answer, Request};"), 0);
        assert_eq!(found("crates/file-service/tests/x.rs", "use tidegate_file_wire::row_at;"), 0);
    }
}

//! The house rules, each a small function in the file of its theme.

mod call_chain;
mod circles;
mod clients;
mod documents;
mod engines;
mod failures;
mod homonyms;
mod imports;
mod layers;
mod leftovers;
mod lengths;
mod manifests;
mod map;
mod names;
mod parameters;
mod preambles;
mod program;
mod prose;
mod reach;
mod records;
mod seams;
mod stray;
mod tested;
mod unsafety;
mod vocabulary;
mod waiting;

use crate::exceptions::{Exceptions, LIST, Measured};
use crate::pages;
use crate::source::{Finding, SourceFile};
use crate::workspace::{self, Workspace};
use anyhow::{Result, anyhow};
use layers::Layers;

/// Rules that judge one Rust file.
const OF_FILES: [fn(&SourceFile) -> Vec<Finding>; 12] = [
    names::names,
    imports::globs,
    leftovers::dead_code,
    leftovers::unfinished,
    leftovers::commented_out,
    failures::unwraps,
    preambles::preambles,
    unsafety::addresses,
    unsafety::proofs,
    unsafety::mutable_statics,
    records::fields,
    seams::traits,
];

/// Rules that judge one Rust file by its crate's layer.
const OF_LAYERS: [fn(&SourceFile, &Layers) -> Vec<Finding>; 4] =
    [engines::own_concurrency, engines::output, failures::string_errors, seams::parameters];

/// Rules that measure the workspace as a whole.
const OF_WORKSPACE: [fn(&Workspace, &Layers) -> Vec<Measured>; 18] = [
    circles::circles,
    lengths::crates,
    lengths::folders,
    program::concurrency,
    program::stores,
    stray::facts,
    reach::unreached,
    reach::unused_items,
    homonyms::homonyms,
    parameters::bools,
    tested::own_tests,
    clients::second,
    failures::matches,
    prose::pages,
    prose::comments,
    prose::comment_columns,
    vocabulary::terms,
    vocabulary::words,
];

/// Everything in the workspace that breaks a rule, sorted by place.
pub(crate) fn judge(workspace: &Workspace) -> Result<Vec<Finding>> {
    let layers = match layers(workspace) {
        Ok(layers) => layers,
        Err(finding) => return Ok(vec![finding]),
    };
    let mut findings = layers.check(workspace);
    for file in &workspace.sources {
        findings.extend(OF_FILES.iter().flat_map(|rule| rule(file)));
        findings.extend(OF_LAYERS.iter().flat_map(|rule| rule(file, &layers)));
    }
    findings.extend(workspace.crates.iter().flat_map(manifests::manifests));
    findings.extend(workspace.texts.iter().flat_map(documents::machine_paths));
    let exists = |path: &str| workspace::hold(&workspace.texts, path);
    findings.extend(workspace.texts.iter().flat_map(|text| documents::dead_ends(text, exists)));
    findings.extend(map::map(workspace, &layers));
    findings.extend(pages::stale(workspace));
    findings.extend(exceptions(workspace)?.judge(&measure(workspace, &layers)));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// The list of exceptions lowered to what is measured now, as its file's text.
pub(crate) fn shrunk(workspace: &Workspace) -> Result<String> {
    Ok(exceptions(workspace)?.shrunk(&measured(workspace)?).written())
}

/// What the measured rules find too large, excused or not, and what is only reported, sorted by
/// rule and place.
pub(crate) fn reported(workspace: &Workspace) -> Result<Vec<Measured>> {
    let layers = layers(workspace).map_err(|finding| anyhow!("{finding}"))?;
    let mut measured = measured(workspace)?;
    measured.extend(call_chain::chains(workspace, &layers));
    Ok(measured)
}

/// What the measured rules find too large, excused or not, sorted by rule and place.
fn measured(workspace: &Workspace) -> Result<Vec<Measured>> {
    let layers = layers(workspace).map_err(|finding| anyhow!("{finding}"))?;
    let mut measured = measure(workspace, &layers);
    measured.sort_by(|a, b| {
        (a.rule, &a.place, &a.item, &a.file, a.line).cmp(&(b.rule, &b.place, &b.item, &b.file, b.line))
    });
    Ok(measured)
}

fn layers(workspace: &Workspace) -> Result<Layers, Finding> {
    Layers::parse(workspace.text("ARCHITECTURE.md").unwrap_or_default())
}

fn exceptions(workspace: &Workspace) -> Result<Exceptions> {
    Exceptions::parse(workspace.text(LIST))
}

fn measure(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let of_file = |file| {
        let lengths = lengths::functions(file).into_iter().chain(lengths::files(file));
        lengths.chain(waiting::sleeps(file, layers)).collect::<Vec<_>>()
    };
    let mut measured: Vec<_> = workspace.sources.iter().flat_map(of_file).collect();
    measured.extend(OF_WORKSPACE.iter().flat_map(|rule| rule(workspace, layers)));
    measured
}

//! The house rules, each a small function in the file of its theme.

mod documents;
mod engines;
mod failures;
mod imports;
mod layers;
mod leftovers;
mod lengths;
mod manifests;
mod names;
mod preambles;
mod records;
mod seams;
mod unsafety;
mod waiting;

use crate::exceptions::{Exceptions, Measured};
use crate::pages;
use crate::source::{Finding, SourceFile};
use crate::workspace::Workspace;
use anyhow::Result;
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

/// Everything in the workspace that breaks a rule, sorted by place.
pub(crate) fn judge(workspace: &Workspace) -> Result<Vec<Finding>> {
    let layers = match Layers::parse(workspace.text("ARCHITECTURE.md").unwrap_or_default()) {
        Ok(layers) => layers,
        Err(finding) => return Ok(vec![finding]),
    };
    let exceptions = Exceptions::parse(workspace.text("crates/xtask/exceptions.toml"))?;
    let mut findings = layers.check(workspace);
    for file in &workspace.sources {
        findings.extend(OF_FILES.iter().flat_map(|rule| rule(file)));
        findings.extend(OF_LAYERS.iter().flat_map(|rule| rule(file, &layers)));
    }
    findings.extend(workspace.crates.iter().flat_map(manifests::manifests));
    findings.extend(workspace.texts.iter().flat_map(documents::machine_paths));
    let exists = |path: &str| workspace.holds(path);
    findings.extend(workspace.texts.iter().flat_map(|text| documents::dead_ends(text, exists)));
    findings.extend(pages::stale(workspace));
    findings.extend(exceptions.judge(&measure(workspace, &layers)));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// What the measured rules find too large; exceptions may excuse it.
fn measure(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let of_file = |file| {
        let lengths = lengths::functions(file).into_iter().chain(lengths::files(file));
        lengths.chain(waiting::sleeps(file, layers)).collect::<Vec<_>>()
    };
    workspace.sources.iter().flat_map(of_file).collect()
}

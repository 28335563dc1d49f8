//! One build of the code: no features, and every manifest under the workspace's lints.

use crate::source::Finding;
use crate::workspace::Crate;

/// Crates that must describe fixed records themselves.
const RECORD_CRATES: [&str; 2] = ["layout", "btt"];
const SERIALIZERS: [&str; 3] = ["serde", "bincode", "postcard"];

/// Manifests with a section or a dependency they must not have, or without one they must.
pub(crate) fn manifests(krate: &Crate) -> Vec<Finding> {
    let mut advice = Vec::new();
    if krate.manifest.contains_key("features") {
        advice.push("remove `[features]`: there is one behaviour, and it is tested".to_owned());
    }
    let inherits = krate.manifest.get("lints").and_then(|lints| lints.get("workspace")) == Some(&true.into());
    if !inherits {
        advice.push("write `[lints] workspace = true`".to_owned());
    }
    let dependencies = krate.manifest.get("dependencies").and_then(toml::Value::as_table);
    for name in SERIALIZERS.iter().filter(|name| dependencies.is_some_and(|table| table.contains_key(**name))) {
        if RECORD_CRATES.contains(&krate.name.as_str()) {
            advice.push(format!("drop `{name}`: fixed records are laid out by hand"));
        }
    }
    let file = format!("{}/Cargo.toml", krate.folder);
    advice.into_iter().map(|advice| Finding { file: file.clone(), line: 1, rule: "manifest", advice }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, manifest: &str) -> usize {
        let manifest = manifest.parse().expect("samples are TOML");
        manifests(&Crate { name: name.into(), folder: "crates/x".into(), manifest }).len()
    }

    #[test]
    fn features_and_missing_lints_are_found() {
        assert_eq!(found("nbd", "[lints]\nworkspace = true\n[features]\nfast = []"), 1);
        assert_eq!(found("nbd", "[dependencies]\nserde = '1'"), 1);
        assert_eq!(found("layout", "[lints]\nworkspace = true\n[dependencies]\nserde = '1'"), 1);
        assert_eq!(found("cli", "[lints]\nworkspace = true\n[dependencies]\nserde = '1'"), 0);
    }
}

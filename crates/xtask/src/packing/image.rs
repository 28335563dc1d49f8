//! An image of the Open Container Initiative, as a file: an archive of its layout, with one layer.
//! `podman load`, `skopeo copy oci-archive:FILE` and others read it.

use super::linking::{Needs, loaded_by};
use super::tree::Tree;
use super::{About, Built, archive, gzipped, licences, printed, stripped, text_of};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::process::Command;

/// The user that the program runs as; the number is one that systems give nobody.
const USER: u32 = 65_500;
/// Where volumes lie: it belongs to that user.
const STATE: &str = "var/lib/tidegate";
/// Where sockets lie.
const RUNTIME: &str = "run/tidegate";
const BLOBS: &str = "blobs/sha256";

/// The name of the image's file, and its bytes.
pub(super) fn made(built: &Built, about: &About) -> Result<(String, Vec<u8>)> {
    let layer = archive::tar(&files(built)?, "", about.epoch)?;
    let packed = gzipped(&layer, about.level)?;
    let created = printed(
        Command::new("date").args(["--utc", "+%FT%TZ", "--date"]).arg(format!("@{}", about.epoch)),
        "coreutils",
    )?;
    let created = String::from_utf8_lossy(&created).trim().to_owned();
    let mut layout = Tree::default();
    let layer = (digest(&layer), blob(&mut layout, "application/vnd.oci.image.layer.v1.tar+gzip", packed));
    let config = configuration(&layer.0, &created, about.version);
    let config = blob(&mut layout, "application/vnd.oci.image.config.v1+json", config.to_string());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer.1],
    });
    let mut manifest = blob(&mut layout, "application/vnd.oci.image.manifest.v1+json", manifest.to_string());
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": about.version });
    manifest["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    layout.file("index.json", 0o644, index.to_string());
    layout.file("oci-layout", 0o644, json!({ "imageLayoutVersion": "1.0.0" }).to_string());
    Ok((format!("tidegate-{}-image.tar", about.version), archive::tar(&layout, "", about.epoch)?))
}

/// How a container of the image is run.
fn configuration(layer: &str, created: &str, version: &str) -> Value {
    json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin", "XDG_STATE_HOME=/var/lib", "RUNTIME_DIRECTORY=/run/tidegate"],
            "Entrypoint": ["/usr/bin/tidegate"],
            "Cmd": ["serve"],
            "WorkingDir": format!("/{STATE}"),
            "Volumes": { format!("/{STATE}"): {}, format!("/{RUNTIME}"): {} },
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "Tidegate",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
                "org.opencontainers.image.source": "https://github.com/tidegate/tidegate",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [layer] },
        "history": [{ "created": created, "created_by": "cargo xtask image" }],
    })
}

/// The files in a container: the program, the libraries it loads if it is not static, and licences.
fn files(built: &Built) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("usr/bin/tidegate", 0o755, stripped(&built.program)?);
    if !Needs::of([built.program.as_path()])?.is_none() {
        for path in loaded_by(&built.program)? {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            tree.file(path.to_string_lossy().trim_start_matches('/'), 0o755, bytes);
        }
    }
    tree.file("etc/passwd", 0o644, format!("root:x:0:0::/:/\ntidegate:x:{USER}:{USER}::/{STATE}:/\n"));
    tree.file("etc/group", 0o644, format!("root:x:0:\ntidegate:x:{USER}:\n"));
    tree.folder(STATE, 0o700, USER);
    tree.folder(RUNTIME, 0o755, USER);
    tree.folder("tmp", 0o1777, 0);
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        tree.file(&format!("usr/share/doc/tidegate/{name}"), 0o644, text_of(name)?);
    }
    let page = licences::page().context("cannot collect the licences of crates")?;
    tree.file("usr/share/doc/tidegate/licences-of-crates.txt", 0o644, page);
    Ok(tree)
}

/// Adds `bytes` to the layout, and returns how others name them.
fn blob(layout: &mut Tree, media_type: &str, bytes: impl Into<Vec<u8>>) -> Value {
    let bytes = bytes.into();
    let descriptor = json!({ "mediaType": media_type, "digest": digest(&bytes), "size": bytes.len() });
    let name = hexadecimal(&bytes);
    layout.file(&format!("{BLOBS}/{name}"), 0o644, bytes);
    descriptor
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hexadecimal(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

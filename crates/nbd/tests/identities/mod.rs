//! Certificates made for one test: an authority, a server and a client that it signed, and a
//! stranger that it did not.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder of PEM files, named as libnbd's and QEMU's clients expect them.
pub(crate) struct Identities {
    folder: TempDir,
}

impl Identities {
    /// `ca-cert.pem`, `server-…`, `client-…`, and in `stranger/` another authority and its client.
    pub(crate) fn make() -> Identities {
        let identities = Identities { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(identities.path("stranger")).unwrap();
        let ours = authority(&identities.path("ca-cert.pem"));
        leaf(&identities.path(""), "server", &ours, ExtendedKeyUsagePurpose::ServerAuth);
        leaf(&identities.path(""), "client", &ours, ExtendedKeyUsagePurpose::ClientAuth);
        let theirs = authority(&identities.path("stranger/their-ca-cert.pem"));
        leaf(&identities.path("stranger"), "client", &theirs, ExtendedKeyUsagePurpose::ClientAuth);
        fs::copy(identities.path("ca-cert.pem"), identities.path("stranger/ca-cert.pem")).unwrap();
        identities
    }

    /// The file of this name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn authority(file: &Path) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "authority of a test");
    let key = KeyPair::generate().unwrap();
    fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
    Issuer::new(params, key)
}

fn leaf(folder: &Path, role: &str, issuer: &Issuer<'_, KeyPair>, purpose: ExtendedKeyUsagePurpose) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.distinguished_name.push(DnType::CommonName, role);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join(format!("{role}-cert.pem")), params.signed_by(&key, issuer).unwrap().pem()).unwrap();
    fs::write(folder.join(format!("{role}-key.pem")), key.serialize_pem()).unwrap();
}

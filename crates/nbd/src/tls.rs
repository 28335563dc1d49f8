//! TLS under a connection: the server's certificate, the certificates it wants of clients, and one
//! encrypted stream.
//!
//! The first bytes of a client that was told to go on are its part of the TLS handshake, which
//! happens inside the first call that waits for bytes.

use crate::stream::Stream;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Bytes taken from the socket at once: a TLS record and its frame.
const RECORD_BYTES: usize = 17 << 10;

/// How long a client may take to make room for the last record of a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A server's identity, and whom it trusts.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

/// Why an identity cannot be used. Each names the file that has to be put right.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file is not in PEM form.
    #[error("{} is no PEM file: {why}", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file has no certificate.
    #[error("{} has no certificate in it", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file has no private key.
    #[error("{} has no private key in it", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not belong together, or are of a kind that cannot be used.
    #[error("certificate {} cannot be used with key {}: {why}", certificate.display(), key.display())]
    BadPair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why not.
        why: String,
    },
    /// An authority's certificate cannot be used.
    #[error("{} cannot be used to verify clients: {why}", path.display())]
    BadAuthority {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl Tls {
    /// The identity in the PEM files `certificate` (the server's own first, then those that lead to
    /// a root) and `key`. With `client_authority`, only clients whose certificate one of the
    /// authorities in that file signed are served. `read` gives the bytes of a file.
    ///
    /// # Errors
    /// A file cannot be read or used; see [`TlsError`].
    pub fn from_pem_files(
        certificate: &Path,
        key: &Path,
        client_authority: Option<&Path>,
        read: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Tls, TlsError> {
        let bytes = |path: &Path| read(path).map_err(|error| TlsError::Unreadable { path: path.to_owned(), error });
        let chain = certificates(certificate, &bytes(certificate)?)?;
        let secret = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError::NoKey { path: key.to_owned() },
            error => unusable(key, error),
        })?;
        let bad_pair = |error: rustls::Error| TlsError::BadPair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            why: error.to_string(),
        };
        let provider = Arc::new(ring::default_provider());
        let versions = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = versions.map_err(bad_pair)?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = authorities(path, &bytes(path)?)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| bad_authority(path, error))?)
            }
        };
        let config = builder.with_single_cert(chain, secret).map_err(bad_pair)?;
        Ok(Tls { config: Arc::new(config) })
    }

    /// The server's end of an encrypted stream over `stream`. The handshake happens inside the
    /// first call that waits for bytes.
    pub fn over<'s, S: Stream>(&self, stream: &'s S) -> io::Result<Encrypted<'s, S>> {
        Encrypted::over(stream, self)
    }
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    let found = read.map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}

fn authorities(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, bytes)? {
        roots.add(certificate).map_err(|error| bad_authority(path, error))?;
    }
    Ok(roots)
}

fn bad_authority(path: &Path, error: impl ToString) -> TlsError {
    TlsError::BadAuthority { path: path.to_owned(), why: error.to_string() }
}

fn unusable(path: &Path, error: impl ToString) -> TlsError {
    TlsError::NotPem { path: path.to_owned(), why: error.to_string() }
}

/// A stream whose bytes are encrypted on their way through another.
///
/// One thread receives while others send. Whoever sends holds `sending` from the encryption to the
/// socket, so that records leave in the order of their numbers; nobody holds `session` while
/// waiting for the socket.
pub struct Encrypted<'s, S> {
    stream: &'s S,
    session: Mutex<ServerConnection>,
    sending: Mutex<Sending>,
    received: Mutex<Records>,
}

/// The way out.
#[derive(Default)]
struct Sending {
    /// What is encrypted and not sent yet.
    records: Vec<u8>,
    /// Whether a record may have been sent in part: the client would take whatever follows for the
    /// rest of it.
    is_broken: bool,
}

/// What arrived and is not decrypted yet. A session holds one record's worth of decrypted bytes,
/// and takes no more before they are fetched.
struct Records {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<'s, S: Stream> Encrypted<'s, S> {
    pub(crate) fn over(stream: &'s S, tls: &Tls) -> io::Result<Encrypted<'s, S>> {
        let session = ServerConnection::new(Arc::clone(&tls.config)).map_err(failed)?;
        Ok(Encrypted {
            stream,
            session: Mutex::new(session),
            sending: Mutex::default(),
            received: Mutex::new(Records { bytes: vec![0; RECORD_BYTES].into(), start: 0, end: 0 }),
        })
    }

    /// Takes decrypted bytes that are there; none if more has to arrive first.
    fn take(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match self.session.lock().expect(HOLDER_PANICKED).reader().read(out) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there are decrypted bytes to take, or the end of them.
    fn has_some(&self) -> io::Result<bool> {
        match self.session.lock().expect(HOLDER_PANICKED).reader().into_first_chunk() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Decrypts some of what arrived, and answers what TLS itself has to answer.
    fn understand(&self, records: &mut Records) -> io::Result<()> {
        let mut session = self.session.lock().expect(HOLDER_PANICKED);
        records.start += session.read_tls(&mut &records.bytes[records.start..records.end])?;
        let fate = session.process_new_packets();
        let answers = session.wants_write();
        drop(session);
        if answers {
            // After a failure this is the alert that tells the client why; it may have left.
            let sent = self.send_encrypted(&[]);
            fate.map_err(failed)?;
            return sent;
        }
        fate.map(drop).map_err(failed)
    }

    /// Takes decrypted bytes, of those that `receive` brings if there are none. `Interrupted`: all
    /// it brought is part of a record.
    fn receive_by(&self, out: &mut [u8], mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut records = self.received.lock().expect(HOLDER_PANICKED);
        loop {
            if let Some(len) = self.take(out)? {
                return Ok(len);
            }
            let waited = records.start == records.end;
            if waited {
                (records.start, records.end) = (0, receive(&mut records.bytes)?);
                if records.end == 0 {
                    return Ok(0);
                }
            }
            self.understand(&mut records)?;
            // A client that sends its records by drops must not keep the caller from looking at the
            // clock.
            if waited && records.start == records.end && !self.has_some()? {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }

    fn send_encrypted(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut sending = self.sending.lock().expect(HOLDER_PANICKED);
        loop {
            let mut session = self.session.lock().expect(HOLDER_PANICKED);
            let taken = session.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.send_records(&mut sending, session)?;
            if bytes.is_empty() {
                // Beside the work of encrypting much, getting the memory anew is nothing; idle
                // connections are many.
                sending.records.clear();
                sending.records.shrink_to(RECORD_BYTES);
                return Ok(());
            }
        }
    }

    /// Sends what `session` has encrypted.
    fn send_records(&self, sending: &mut Sending, mut session: MutexGuard<'_, ServerConnection>) -> io::Result<()> {
        sending.records.clear();
        while session.wants_write() {
            session.write_tls(&mut sending.records)?;
        }
        drop(session);
        self.stream.send(&sending.records).inspect_err(|_| sending.is_broken = true)
    }

    /// Ends the session: tells the client that nothing follows (`close_notify`), so that it can
    /// tell this end from one that somebody in between made. A client that makes no room for it
    /// within 1 s is not told.
    pub fn close(&self) {
        let mut sending = self.sending.lock().expect(HOLDER_PANICKED);
        if sending.is_broken || self.stream.limit_sending(Some(CLOSE_TIMEOUT)).is_err() {
            return;
        }
        let mut session = self.session.lock().expect(HOLDER_PANICKED);
        session.send_close_notify();
        // The client may have left.
        let _ = self.send_records(&mut sending, session);
    }
}

impl<S: Stream> Stream for Encrypted<'_, S> {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive_by(out, |records| self.stream.receive(records))
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive_by(out, |records| self.stream.receive_now(records)).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => ErrorKind::WouldBlock.into(),
            _ => error,
        })
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_encrypted(bytes)
    }

    fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.limit_waiting(limit)
    }

    fn limit_sending(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.limit_sending(limit)
    }
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}"))
}

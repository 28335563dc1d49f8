//! Any subject over NBD, so that programs can be run on it: a file system by nbdfuse and a loop
//! device, or a guest's disk.

use crate::caiti::stacks::{Kind, Stack};
use crate::recorded::Recorder;
use anyhow::Context;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use tidegate_block_export::Export;
use tidegate_nbd::{Exports, Service, serve};

/// A subject that is served on a unix socket for as long as this process lives.
pub struct NbdExport {
    listener: UnixListener,
    service: Arc<Service>,
    // The device, and the threads beside it.
    _stack: Stack,
}

impl NbdExport {
    /// Listens on `socket`, which must not exist, for clients of `kind` with `bytes` bytes over
    /// `medium`, and a cache of `cache_bytes` if it has one.
    pub fn at(socket: &Path, kind: Kind, medium: &str, bytes: u64, cache_bytes: u64) -> anyhow::Result<NbdExport> {
        NbdExport::of(socket, kind, kind.stack(medium, bytes, cache_bytes)?)
    }

    /// Listens on `socket` for clients of `stack`, whose requests are recorded in a new file at
    /// `path`.
    pub fn recorded(socket: &Path, kind: Kind, mut stack: Stack, path: &Path) -> anyhow::Result<NbdExport> {
        stack.device = Arc::new(Recorder::over(stack.device, path)?);
        NbdExport::of(socket, kind, stack)
    }

    fn of(socket: &Path, kind: Kind, stack: Stack) -> anyhow::Result<NbdExport> {
        let export = Export::new("subject", kind.label(), stack.device.clone());
        let service = Arc::new(Service::plain(Exports::new(vec![export])?));
        let listener = UnixListener::bind(socket).with_context(|| format!("listen on {}", socket.display()))?;
        Ok(NbdExport { listener, service, _stack: stack })
    }

    /// Serves whoever connects, each on a thread of its own; `count` clients, or without end.
    pub fn serve(&self, count: Option<usize>) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            for client in self.listener.incoming().take(count.unwrap_or(usize::MAX)) {
                let client = client.context("waiting for clients")?;
                scope.spawn(move || self.attend(&client));
            }
            Ok(())
        })
    }

    fn attend(&self, client: &UnixStream) {
        if let Err(error) = serve(&self.service, client) {
            eprintln!("bench: a client was lost: {error}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use tidegate_media::Durability;
    use tidegate_nbd_client::client::{Client, Dialect};

    #[test]
    fn a_rival_keeps_what_a_client_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let export = NbdExport::at(&socket, Kind::Lru, "nvdimm", 4 << 20, 1 << 20).unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| export.serve(Some(1)));
            let stream = UnixStream::connect(&socket).unwrap();
            let mut client = Client::connect(stream, "subject", Dialect::Structured).unwrap();
            client.write(4096, &[7; 8192], Durability::Volatile).unwrap();
            let mut read = [0; 8192];
            client.read(4096, &mut read).unwrap();
            assert_eq!(read, [7; 8192]);
            client.disconnect().unwrap();
            serving.join().unwrap().unwrap();
        });
    }
}

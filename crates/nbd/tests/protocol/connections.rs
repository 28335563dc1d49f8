//! Connections of the crate's own client to a server on a thread of its own.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use tidegate_nbd::{End, Service, serve};
use tidegate_nbd_client::client::{Client, Dialect};

/// A client of the default export, served by a thread of its own.
pub(crate) fn attach(service: &Arc<Service>, dialect: Dialect) -> (Client<UnixStream>, thread::JoinHandle<End>) {
    let (near, far) = UnixStream::pair().unwrap();
    let service = Arc::clone(service);
    let server = thread::spawn(move || serve(&service, &far).unwrap());
    (Client::connect(near, "", dialect).unwrap(), server)
}

/// Ends a connection in due form.
pub(crate) fn detach((client, server): (Client<UnixStream>, thread::JoinHandle<End>)) {
    client.disconnect().unwrap();
    assert_eq!(server.join().unwrap(), End::Disconnected);
}

//! Serves a device in memory on a unix socket, one thread a connection: `ram SOCKET [MEBIBYTES]`.
//!
//! For measuring the protocol alone: `fio --ioengine=nbd --uri=nbd+unix:///?socket=SOCKET ...`

#![forbid(unsafe_code)]

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use tidegate_block_export::Export;
use tidegate_nbd::{Exports, Service, serve};
use tidegate_nbd_client::ram::Ram;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("usage: ram SOCKET [MEBIBYTES]")?;
    let mebibytes: u64 = arguments.next().map_or(Ok(64), |number| number.parse())?;
    let device = Arc::new(Ram::new(4096, mebibytes << 8));
    let service = Arc::new(Service::plain(Exports::new(vec![Export::new("ram", "memory", device)])?));
    for stream in UnixListener::bind(socket)?.incoming() {
        let (stream, service) = (stream?, Arc::clone(&service));
        thread::spawn(move || {
            if let Err(error) = serve(&service, &stream) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

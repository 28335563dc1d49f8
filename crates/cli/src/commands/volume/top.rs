//! `tidegate top`: everything that runs, on a screen or once as a table; and the metrics of mounts.

use crate::commands::volume::serve::plan;
use crate::errors::{Exit, Failure};
use crate::grammar::Top;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::io::Read;
use std::time::Duration;
use tidegate_host::sd_notify::SystemdNotify;
use tidegate_server::failure::Failure as ServerFailure;
use tidegate_server::options::{Plan, TlsIdentity};
use tidegate_server::signals::Signals;
use tidegate_top::{MountsPort, TopFailure, TopOptions, look, watch};

/// What `top --metrics` answers once Prometheus can ask.
#[derive(Serialize)]
struct Answering {
    /// Where.
    metrics: String,
}

impl fmt::Display for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}", "metrics", self.metrics)
    }
}

/// Runs `tidegate top`.
pub(crate) fn run(args: &Top, json: bool) -> Result<Exit, Failure> {
    let plan = port(args);
    plan::refuse_conflicts(&plan)?;
    if let Some(port) = MountsPort::open(&plan)? {
        return answer(port, json);
    }
    let options = TopOptions { interval: Duration::from_secs(args.interval.get().into()), sort: args.sort };
    match (args.once, json) {
        (true, _) => output::give(&look(&options), json)?,
        (false, true) => return Err(TopFailure::NoTerminal { why: "JSON has no screen" }.into()),
        (false, false) => watch(&options)?,
    }
    Ok(Exit::Done)
}

/// Where Prometheus is to be answered, and on which terms: a plan without volumes.
fn port(args: &Top) -> Plan {
    let identity = args.tls_certificate.clone().zip(args.tls_key.clone());
    Plan {
        metrics: args.metrics,
        metrics_token: args.metrics_token.clone(),
        tls: identity.map(|(certificate, key)| TlsIdentity { certificate, key, clients: None }),
        ..Plan::default()
    }
}

/// Answers at `port` until SIGTERM or SIGINT.
fn answer(port: MountsPort, json: bool) -> Result<Exit, Failure> {
    let mut signals = Signals::watch().map_err(ServerFailure::system("watching for signals"))?;
    let systemd = SystemdNotify::from_environment();
    let answering = Answering { metrics: port.url() };
    output::give(&answering, json)?;
    systemd.ready(&format!("metrics of mounts at {}", answering.metrics));
    signals.ending.read_exact(&mut [0]).map_err(ServerFailure::system("waiting for signals"))?;
    systemd.stopping();
    drop(port);
    Ok(Exit::Done)
}

//! Mounts, asked for Prometheus: all of this user, for root of every user, at one port.
//!
//! A mount has no port of its own: one place to ask stays the same while mounts come and go, and
//! the service of a mount runs no server of HTTP.

use crate::mount_metrics::{self, AskedMount};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tidegate_file_service::{FoundMount, status_within};
use tidegate_host::processes;
use tidegate_server::control::metrics_port::MetricsPort;
use tidegate_server::failure::Failure;
use tidegate_server::options::Plan;

/// For how long a mount may say nothing. Prometheus waits for 10 s unless told otherwise.
pub(crate) const MOUNT_PATIENCE: Duration = Duration::from_secs(1);

/// Every mount of this user, for root of every user, each asked on a thread of its own.
fn asked() -> Vec<AskedMount> {
    let (found, _) = FoundMount::among(processes::of_this_user());
    thread::scope(|threads| {
        let asking: Vec<_> = found.iter().map(|mount| threads.spawn(|| ask(mount))).collect();
        asking.into_iter().filter_map(|asked| asked.join().ok().flatten()).collect()
    })
}

/// Asks a mount; None: it has ended.
fn ask(found: &FoundMount) -> Option<AskedMount> {
    let asked = AskedMount { pool: found.pool.clone(), mountpoint: None, uid: found.user, status: None };
    match status_within(MOUNT_PATIENCE, &found.pool) {
        Ok(None) => None,
        Ok(Some(status)) => {
            Some(AskedMount { mountpoint: Some(status.mountpoint.clone()), status: Some(status), ..asked })
        }
        Err(failure) => {
            tracing::debug!("a mount does not answer: {failure}");
            Some(AskedMount { mountpoint: found.mountpoint(), ..asked })
        }
    }
}

/// A port at which Prometheus finds the metrics of all mounts, until this is dropped.
pub struct MountsPort(MetricsPort);

impl MountsPort {
    /// Answers at `plan.metrics`, to whom `plan.metrics_token` and `plan.tls` say; nothing else of
    /// the plan matters. None: the plan has no port. Mounts are found and asked once for each
    /// question, one question after the other; between questions the threads sleep.
    ///
    /// # Errors
    /// The port cannot be opened, or the token or the identity not be read.
    pub fn open(plan: &Plan) -> Result<Option<MountsPort>, Failure> {
        // Whoever asks a lot makes no more work than one who asks all the time.
        let turn = Mutex::new(());
        let text = move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            mount_metrics::text(&asked())
        };
        Ok(MetricsPort::of_text(plan, text)?.map(MountsPort))
    }

    /// Where metrics are answered.
    pub fn url(&self) -> String {
        self.0.url()
    }
}

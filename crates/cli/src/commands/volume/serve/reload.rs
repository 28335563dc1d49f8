//! SIGHUP: the configuration is read again, and followed as far as a running server can.

use crate::commands::tools::check_config::server_plan;
use crate::commands::volume::serve::announce::Serving;
use crate::commands::volume::serve::{check_inherited, plan, protection, warn_of_exposure, warn_of_the_shut_out};
use crate::config;
use crate::errors::{Failure, report};
use crate::grammar::Serve;
use crate::output;
use std::path::Path;
use tidegate_host::sd_notify::SystemdNotify;
use tidegate_host::shell::{Ends, shown};
use tidegate_operation::{Reloaded, Running, TakesEffect};
use tidegate_server::options::Plan;

/// What a server needs to read its configuration again.
pub(super) struct Reload<'a> {
    pub(super) args: &'a Serve,
    pub(super) systemd: &'a SystemdNotify,
    pub(super) json: bool,
}

impl Reload<'_> {
    /// Follows the configuration as it is now. Everything that came of that is told on stderr.
    pub(super) fn carry_out(&self, running: &mut Running, serving: &mut Serving) {
        let Reload { args, systemd, json } = *self;
        let tell = |line: &str| output::teller(json)(&shown(&format!("reload: {line}"), Ends::OfNothing));
        let Some(path) = &args.config else {
            return tell("ignored: the server was started without --config, and has no file to read");
        };
        systemd.reloading();
        match planned(args, path, running).and_then(|plan| running.reload(plan).map_err(|failure| vec![failure.into()]))
        {
            Ok(Reloaded { differences, renewed_identity, renewed_token, cut }) => {
                differences.iter().for_each(|difference| tell(&difference.to_string()));
                if renewed_identity {
                    tell("tls: the files were read again, for new connections");
                }
                if renewed_token {
                    tell("metrics_token: the file was read again");
                }
                if cut > 0 {
                    tell(&format!("{cut} connections were cut: their socket or their permission went"));
                }
                warn_of_exposure(&running.plan, &running.entrances);
                warn_of_the_shut_out(&running.plan, &running.entrances);
                let places: Vec<_> = running.entrances.nbd_listeners().map(|listener| listener.place()).collect();
                serving.move_to(&places, protection(&running.plan));
                running.watching.tell_uris(serving.all_places());
                let later = differences.iter().filter(|difference| difference.takes_effect == TakesEffect::AtRestart);
                tell(&format!(
                    "done: {} keys changed, {} of them for the next start",
                    differences.len(),
                    later.count()
                ));
            }
            Err(mistakes) => {
                mistakes.iter().for_each(|mistake| _ = report(mistake, json));
                tell(&format!("refused: nothing is changed; correct {}, and reload again", path.display()));
            }
        }
        systemd.ready(&serving.status());
    }
}

/// The plan in the file at `path`, or all its mistakes.
fn planned(args: &Serve, path: &Path, running: &Running) -> Result<Plan, Vec<Failure>> {
    let text = config::text_of(path).map_err(|unreadable| vec![unreadable.into()])?;
    let (plan, mut mistakes) = server_plan(path, &text, |plan| plan::with_flags(plan, args));
    if let Some(plan) = plan {
        let inherited = running.entrances.inherited().map(|listener| listener.place());
        mistakes.extend(check_inherited(&plan, inherited).into_iter().map(Failure::from));
        if mistakes.is_empty() {
            return Ok(plan);
        }
    }
    Err(mistakes)
}

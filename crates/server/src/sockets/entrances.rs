//! The sockets at which clients find the volumes: opened as a plan says, and exchanged when it
//! changes.

use crate::failure::Failure;
use crate::fronts::Protocol;
use crate::options::Plan;
use crate::sockets::connections::EnteredBy;
use crate::sockets::listen::{ListenAddress, Listener, SocketAccess};
use std::path::{Path, PathBuf};
use tidegate_host::default_paths;

/// A socket, and the protocol of those who connect to it.
pub struct Entrance {
    /// The socket.
    pub listener: Listener,
    /// What a plan asks for by it. `None`: the socket was given with the start.
    wanted: Option<WantedEntrance>,
    number: u64,
}

/// An entrance, as a plan asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WantedEntrance {
    place: ListenAddress,
    protocol: Protocol,
}

impl WantedEntrance {
    /// Why it is not opened, with the option that named it.
    fn failed(&self, failure: Failure) -> Failure {
        match self.protocol {
            Protocol::Nbd => failure,
            Protocol::VhostUserBlk(_) => failure.named_by("--vhost-user PATH"),
        }
    }
}

impl Entrance {
    /// What there is to say about a client that connects here.
    pub fn client(&self) -> EnteredBy {
        let protocol = self.wanted.as_ref().map_or(Protocol::Nbd, |wanted| wanted.protocol);
        EnteredBy { entrance: self.number, protocol }
    }

    fn is_wanted(&self, wanted: &[WantedEntrance]) -> bool {
        self.wanted.as_ref().is_none_or(|own| wanted.contains(own))
    }
}

/// All entrances of a server: those given with its start, then those of its plan in its order.
#[derive(Default)]
pub struct Entrances {
    open: Vec<Entrance>,
    /// Entrances so far, which is the number of the next.
    numbers: u64,
}

/// Entrances that a new plan asks for and the one before did not: open, but not accepted from yet.
/// Their sockets go when this is dropped.
pub struct OpenedEntrances(Vec<Entrance>);

impl Entrances {
    /// Opens the sockets of `plan` beside those that were `inherited` with the start; one by
    /// default if there are neither.
    pub fn open(plan: &Plan, inherited: Vec<Listener>) -> Result<Entrances, Failure> {
        let mut entrances = Entrances::default();
        for listener in inherited {
            let number = entrances.numbers;
            entrances.numbers += 1;
            entrances.open.push(Entrance { listener, wanted: None, number });
        }
        let opened = entrances.open_missing(plan)?;
        entrances.exchange(plan, opened);
        Ok(entrances)
    }

    /// All of them.
    pub fn all(&self) -> &[Entrance] {
        &self.open
    }

    /// The listeners at which clients speak NBD.
    pub fn nbd_listeners(&self) -> impl Iterator<Item = &Listener> {
        let of_nbd = self.open.iter().filter(|entrance| entrance.client().protocol == Protocol::Nbd);
        of_nbd.map(|entrance| &entrance.listener)
    }

    /// The listeners that were given with the start.
    pub fn inherited(&self) -> impl Iterator<Item = &Listener> {
        self.open.iter().filter(|entrance| entrance.wanted.is_none()).map(|entrance| &entrance.listener)
    }

    /// Opens what `plan` asks for and is not open.
    ///
    /// # Errors
    /// A socket that cannot be opened; then none is.
    pub fn open_missing(&mut self, plan: &Plan) -> Result<OpenedEntrances, Failure> {
        let access = plan.socket_access();
        let mut opened = Vec::new();
        for wanted in self.wanted_by(plan) {
            if self.open.iter().any(|entrance| entrance.wanted.as_ref() == Some(&wanted)) {
                continue;
            }
            if plan.listen.is_empty()
                && wanted.protocol == Protocol::Nbd
                && let ListenAddress::Unix(path) = &wanted.place
            {
                default_paths::make_own_folder_of(path)?;
            }
            let listener = Listener::bind(&wanted.place, access).map_err(|failure| wanted.failed(failure))?;
            opened.push(Entrance { listener, wanted: Some(wanted), number: self.numbers });
            self.numbers += 1;
        }
        Ok(OpenedEntrances(opened))
    }

    /// Lets those whom `access` means open the unix sockets that `plan` keeps.
    ///
    /// # Errors
    /// The system refuses it for one of them. Those before it are changed.
    pub fn share(&self, plan: &Plan, access: SocketAccess) -> Result<(), Failure> {
        let wanted = self.wanted_by(plan);
        let mut kept = self.open.iter().filter(|entrance| entrance.is_wanted(&wanted));
        kept.try_for_each(|entrance| Ok(entrance.listener.share(access)?))
    }

    /// Takes in `opened`, and closes what `plan` does not ask for.
    pub fn exchange(&mut self, plan: &Plan, opened: OpenedEntrances) {
        let wanted = self.wanted_by(plan);
        let place_of = |entrance: &Entrance| match &entrance.wanted {
            None => 0,
            Some(own) => 1 + wanted.iter().position(|wanted| wanted == own).unwrap_or(wanted.len()),
        };
        self.open.retain(|entrance| entrance.is_wanted(&wanted));
        self.open.extend(opened.0);
        self.open.sort_by_key(place_of);
    }

    /// Whether this entrance is open.
    pub fn has(&self, number: u64) -> bool {
        self.open.iter().any(|entrance| entrance.number == number)
    }

    /// What `plan` asks for, for clients of NBD and for monitors of virtual machines.
    fn wanted_by(&self, plan: &Plan) -> Vec<WantedEntrance> {
        let inherits = self.open.iter().any(|entrance| entrance.wanted.is_none());
        let default = || plan.volumes.first().map(|volume| default_paths::default_socket(&volume.pmem));
        let listen = match (&plan.listen[..], inherits) {
            ([], false) => default().map(ListenAddress::Unix).into_iter().collect(),
            (listen, _) => listen.to_vec(),
        };
        let clients = listen.into_iter().map(|place| WantedEntrance { place, protocol: Protocol::Nbd });
        let monitors = plan.volumes.iter().enumerate().filter_map(|(nth, volume)| {
            let place = absolute(volume.vhost_user.clone()?);
            Some(WantedEntrance { place, protocol: Protocol::VhostUserBlk(nth) })
        });
        clients.chain(monitors).collect()
    }
}

fn absolute(path: PathBuf) -> ListenAddress {
    ListenAddress::Unix(path).below(Path::new(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VolumePlan;
    use std::os::unix::fs::PermissionsExt;
    use tidegate_media::Access;

    fn plan(folder: &Path, names: &[&str]) -> Plan {
        let listen = names.iter().map(|name| ListenAddress::Unix(folder.join(name))).collect();
        Plan { listen, ..Plan::default() }
    }

    fn places(entrances: &Entrances) -> Vec<String> {
        let name = |entrance: &Entrance| {
            let path = entrance.listener.place().into_path().expect("a unix socket");
            path.file_name().expect("a name").to_string_lossy().into_owned()
        };
        entrances.all().iter().map(name).collect()
    }

    #[test]
    fn an_exchange_keeps_what_both_plans_ask_for_and_follows_the_order_of_the_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut entrances = Entrances::open(&plan(folder.path(), &["a", "b"]), Vec::new()).expect("they open");
        let kept = entrances.all()[1].client();
        let next = plan(folder.path(), &["c", "b"]);
        let opened = entrances.open_missing(&next).expect("it opens");
        assert_eq!(places(&entrances), ["a", "b"], "nothing is exchanged yet");
        entrances.exchange(&next, opened);
        assert_eq!(places(&entrances), ["c", "b"]);
        assert_eq!(entrances.all()[1].client(), kept);
        assert!(!entrances.has(0) && entrances.has(kept.entrance));
        assert!(!folder.path().join("a").exists() && folder.path().join("b").exists());
    }

    #[test]
    fn what_was_opened_for_a_plan_that_fails_goes_again() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("a file");
        let mut entrances = Entrances::open(&plan(folder.path(), &["a"]), Vec::new()).expect("it opens");
        assert!(entrances.open_missing(&plan(folder.path(), &["new", "file"])).is_err());
        assert!(!folder.path().join("new").exists());
        assert_eq!(places(&entrances), ["a"]);
    }

    #[test]
    fn a_volume_of_a_plan_has_a_default_socket_and_its_monitors_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut volume = VolumePlan::of(folder.path().join("v"), Access::ReadWrite);
        volume.vhost_user = Some(folder.path().join("m"));
        let plan = Plan { volumes: vec![volume], ..plan(folder.path(), &["s"]) };
        let entrances = Entrances::open(&plan, Vec::new()).expect("they open");
        let protocols: Vec<_> = entrances.all().iter().map(|entrance| entrance.client().protocol).collect();
        assert_eq!(protocols, [Protocol::Nbd, Protocol::VhostUserBlk(0)]);
        assert_eq!(entrances.nbd_listeners().count(), 1);
        let default = entrances.wanted_by(&Plan { listen: Vec::new(), ..plan });
        assert_eq!(default[0].place, ListenAddress::Unix(default_paths::default_socket(&folder.path().join("v"))));
    }

    #[test]
    fn a_kept_socket_gets_the_new_mode_and_another_file_in_its_place_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan(folder.path(), &["s"]);
        let entrances = Entrances::open(&plan, Vec::new()).expect("it opens");
        let path = folder.path().join("s");
        let mode = || path.metadata().expect("it is there").permissions().mode() & 0o777;
        let access = |mode| SocketAccess { mode: rustix::fs::Mode::from_raw_mode(mode), group: None };
        assert_eq!(mode(), 0o600);
        entrances.share(&plan, access(0o666)).expect("it is ours");
        assert_eq!(mode(), 0o666);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "").expect("another file");
        let before = mode();
        entrances.share(&plan, access(0o604)).expect_err("it is another file");
        assert_eq!(mode(), before);
    }
}

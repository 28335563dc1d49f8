//! The machine: memory, limits, the kernel, and Tidegate's own services, as findings.

mod kernel;
mod limits;
mod memory;
mod services;
mod system;

use crate::finding::Examination;
use crate::machine_view::MachineView;

/// Examines the machine that this program runs on, as this user sees it.
pub fn examine_machine() -> Examination {
    examine(&MachineView::own(), &services::SeenServices::look())
}

fn examine(view: &MachineView, services: &services::SeenServices) -> Examination {
    let mut findings = memory::findings(view);
    findings.extend(limits::findings(view));
    findings.extend(kernel::findings(view));
    findings.extend(system::findings(view));
    findings.extend(services.findings());
    let release = view.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "an unknown kernel".to_owned());
    Examination::new(format!("this machine, Linux {release}, {}", std::env::consts::ARCH), findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_view::tests::MadeMachine;

    #[test]
    fn a_machine_of_which_nothing_is_known_is_examined_too() {
        let examined = examine(&MadeMachine::new().view(), &services::SeenServices::default());
        let json = serde_json::to_value(&examined).expect("JSON");
        let findings = json["findings"].as_array().expect("a list");
        let about = |subject: &str| findings.iter().filter(|finding| finding["subject"] == subject).count();
        for subject in [
            "persistent-memory",
            "flush-instructions",
            "shared-memory",
            "open-files",
            "mappings",
            "threads",
            "kernel",
            "fuse-device",
            "io-uring",
            "protection-keys",
            "nbd-module",
            "virtual-machines",
            "systemd",
            "state-folder",
            "services",
            "leftovers",
            "small-blocks",
        ] {
            assert_eq!(about(subject), 1, "{subject}: {json:#}");
        }
    }

    /// Every subject that the code names stands in the reference.
    #[test]
    fn the_reference_lists_every_subject() {
        let page = include_str!("../../../docs/reference/doctor.md");
        let listed = |subject: &str| page.contains(&format!("| `{subject}`"));
        let examined = examine(&MadeMachine::new().view(), &services::SeenServices::default());
        let json = serde_json::to_value(&examined).expect("JSON");
        for finding in json["findings"].as_array().expect("a list") {
            let subject = finding["subject"].as_str().expect("text");
            assert!(listed(subject), "no {subject} in the reference");
        }
        for subject in ["huge-pages", "locked-memory", "fusermount3", "mount", "service", "pool", "memory"] {
            assert!(listed(subject), "no {subject} in the reference");
        }
    }

    #[test]
    fn this_machine_is_examined_and_nothing_panics() {
        let text = examine_machine().to_string();
        assert!(text.starts_with("examined   this machine, Linux ") && text.contains("\nsummary "), "{text}");
    }
}

//! Sides of mirrors that are not used, and what to do.

use crate::{Exit, Report};
use std::path::Path;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_layout::mirror::MIRROR_PAGE_BYTES;
use tidegate_media::Domain;
use tidegate_mirror::MirrorError;
use tidegate_server::failure::MirrorFailure;

impl From<&MirrorFailure> for Report {
    fn from(failure: &MirrorFailure) -> Report {
        let what = failure.to_string();
        match failure {
            MirrorFailure::IsSide { path } => is_side(what, path),
            MirrorFailure::Unknown { path, bytes } => unknown(what, path, *bytes),
            MirrorFailure::LookAtDevice { path } => look_at_device(what, path),
            MirrorFailure::Same { .. } => same(what),
            MirrorFailure::Missing { path, other, found } => missing(what, [path, other], found),
            MirrorFailure::Holds { holds, .. } => held(what, holds),
            MirrorFailure::Domains { domains, .. } => domains_differ(what, *domains),
            MirrorFailure::One { path, error } => of_one(what, path, *error),
            MirrorFailure::Two { paths, error } => of_two(what, [&paths[0], &paths[1]], *error),
            MirrorFailure::FixedSize { .. } => fixed_size(what),
            MirrorFailure::Emulated { .. } => emulated(what),
            MirrorFailure::Sparse => sparse(what),
        }
    }
}

fn is_side(what: String, path: &Path) -> Report {
    let path = word(path);
    let next = format!(
        "start a server with both sides, which other commands then ask: tidegate serve --pmem {path} --mirror FILE; if the other side is lost: tidegate serve --pmem {path} --degraded"
    );
    Report::new(
        ("mirror-side", Exit::Refused),
        what,
        "a write to this side alone would leave the other side stale",
        next,
    )
}

fn unknown(what: String, path: &Path, bytes: u64) -> Report {
    let why = "its last bytes, which say so, cannot be read";
    let (shown, page_at) = (word(path), bytes - MIRROR_PAGE_BYTES);
    let alone = if path.to_string_lossy().starts_with("/dev/dax") {
        format!("copy what tidegate serve --read-only --pmem {shown} gives, and create the volume anew")
    } else {
        format!(
            "give the page up, then repair the volume: dd if=/dev/zero of={shown} bs={MIRROR_PAGE_BYTES} count=1 oflag=seek_bytes seek={page_at} conv=notrunc, tidegate check --repair --pmem {shown}"
        )
    };
    let next = format!(
        "if it is one, make it anew from the other side: tidegate rebuild --force --pmem OTHER --mirror {shown}; if not, {alone}"
    );
    Report::new(("mirror-unknown", Exit::Refused), what, why, next)
}

fn look_at_device(what: String, path: &Path) -> Report {
    let path = word(path);
    let next = format!(
        "look at one side alone: tidegate check --pmem {path}, or tidegate info --pmem {path}; clients can only be served without --read-only"
    );
    let why = "both sides are made equal first, and a DAX device has no private copy in which that could be done";
    Report::new(("mirror-device", Exit::Refused), what, why, next)
}

fn same(what: String) -> Report {
    let next = "name a region on other memory as the other side: --mirror FILE";
    Report::new(("mirror-same", Exit::Usage), what, "both paths lead to one file", next)
}

fn missing(what: String, [path, other]: [&Path; 2], found: &str) -> Report {
    let next = format!("correct the path; if it is lost, {}", without(path, other));
    Report::new(("mirror-missing", Exit::Refused), what, found, next)
}

fn held(what: String, holds: &str) -> Report {
    let next = "name another region, or none that is there: --mirror FILE; --force would destroy what this one holds";
    Report::new(("mirror-exists", Exit::Refused), what, format!("it holds {holds}"), next)
}

/// How to go on with the side at `good` if the one at `bad` is lost.
fn without(bad: &Path, good: &Path) -> String {
    let (bad, good) = (word(bad), word(good));
    format!(
        "make it anew: tidegate rebuild --pmem {good} --mirror {bad}; or serve the other side alone: tidegate serve --pmem {good} --degraded"
    )
}

fn domains_differ(what: String, domains: [Domain; 2]) -> Report {
    let why = format!("one is in the domain {}, the other in {}", domains[0], domains[1]);
    Report::new(("mirror-domains", Exit::Refused), what, why, "put both sides on memory of one kind")
}

fn of_one(what: String, path: &Path, error: MirrorError) -> Report {
    let next = match error {
        MirrorError::NotASide { .. } => {
            "leave --degraded and --mirror out; a mirror is made by tidegate create --mirror".to_owned()
        }
        // It does not say that it is a side, so a rebuild would keep what it holds.
        MirrorError::DamagedPage { .. } => {
            format!("use the other side: tidegate rebuild --force --pmem OTHER --mirror {}", word(path))
        }
        _ => format!("use the other side: tidegate rebuild --pmem OTHER --mirror {}", word(path)),
    };
    Report::new(("mirror-unusable", Exit::Refused), what, about(error, ["it", "it"]), next)
}

fn of_two(what: String, [one, other]: [&Path; 2], error: MirrorError) -> Report {
    let named = |region: usize| if region == 0 { (one, other) } else { (other, one) };
    let next = match error {
        MirrorError::Stale { region } | MirrorError::Incomplete { region } | MirrorError::Sealed { region, .. } => {
            let (bad, good) = named(region);
            without(bad, good)
        }
        MirrorError::DamagedPage { region } => {
            let (bad, good) = named(region);
            without(bad, good).replace("tidegate rebuild ", "tidegate rebuild --force ")
        }
        MirrorError::NotASide { region } => {
            let (bad, good) = named(region);
            format!(
                "name the other side of {}; if it is lost, and {} is to take its place: tidegate rebuild --pmem {} --mirror {}",
                good.display(),
                bad.display(),
                word(good),
                word(bad)
            )
        }
        MirrorError::Diverged => format!(
            "see what each holds (serve --read-only --degraded), and overwrite one: tidegate rebuild --force --pmem {} --mirror {}, or the other way round",
            word(one),
            word(other)
        ),
        MirrorError::OtherSet => format!(
            "name the sides of one mirror: tidegate info tells each one's set; to overwrite one of these: tidegate rebuild --force --pmem {} --mirror {}",
            word(one),
            word(other)
        ),
        MirrorError::SameSide { .. } => "one file is a copy of the other: name the other side".to_owned(),
        MirrorError::Lengths { .. } | MirrorError::TooShort { .. } => {
            "choose a region as long as the first one; an absent file is created so".to_owned()
        }
        MirrorError::Unreadable(_) => format!(
            "see which blocks are lost: tidegate check --pmem {}; restore the volume from a copy if it has none",
            word(one)
        ),
    };
    let names = [one, other].map(|path| path.display().to_string());
    Report::new(("mirror-refused", Exit::Refused), what, about(error, [&names[0], &names[1]]), next)
}

/// The error about the regions of those names, in words.
fn about(error: MirrorError, names: [&str; 2]) -> String {
    match error {
        MirrorError::NotASide { region } => format!("{} is not a side of a mirror", names[region]),
        MirrorError::DamagedPage { region } => {
            format!("the end of {}, which says what it is, is damaged", names[region])
        }
        MirrorError::Stale { region } => format!("{} lacks writes that the other side has", names[region]),
        MirrorError::Incomplete { region } => format!("{} is an incomplete copy", names[region]),
        MirrorError::Diverged => "each of them has writes that the other one lacks".to_owned(),
        MirrorError::Sealed { region, sealed } => format!("{}: {sealed}", names[region]),
        MirrorError::Lengths { lengths: [one, other] } => {
            format!("one has {one} bytes ({}), the other {other} ({})", Human(one), Human(other))
        }
        MirrorError::OtherSet
        | MirrorError::SameSide { .. }
        | MirrorError::TooShort { .. }
        | MirrorError::Unreadable(_) => error.to_string(),
    }
}

fn fixed_size(what: String) -> Report {
    let next = "make a new mirror of the other size: tidegate create --mirror";
    Report::new(("mirror-size", Exit::Refused), what, "each side has a page at its end", next)
}

fn emulated(what: String) -> Report {
    let next = "leave --emulate out, or try it on a volume without a mirror";
    Report::new(("mirror-emulated", Exit::Usage), what, "it is one side of a mirror", next)
}

fn sparse(what: String) -> Report {
    let why = "a side that finds its file system full would be given up";
    Report::new(("mirror-sparse", Exit::Usage), what, why, "leave --sparse out")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(failure: &MirrorFailure) -> String {
        Report::from(failure).next
    }

    #[test]
    fn a_damaged_page_is_never_answered_with_what_is_refused_again() {
        let [good, bad] = ["/good", "/bad"].map(Path::new);
        let rebuild = "tidegate rebuild --force --pmem /good --mirror /bad";
        let of_two = next(&MirrorFailure::of_two([bad, good], MirrorError::DamagedPage { region: 0 }));
        assert!(of_two.contains(rebuild), "{of_two}");
        let of_one = next(&MirrorFailure::of_one(bad, MirrorError::DamagedPage { region: 0 }));
        assert!(of_one.contains("rebuild --force --pmem OTHER --mirror /bad"), "{of_one}");
        assert!(!of_one.contains("leave"), "{of_one}");
    }

    #[test]
    fn a_region_that_may_be_a_side_has_a_way_out_if_it_is_none() {
        let next = |path: &str| next(&MirrorFailure::Unknown { path: path.into(), bytes: 3 * 4096 });
        let of_file = next("/v");
        assert!(of_file.contains("of=/v bs=8192 count=1 oflag=seek_bytes seek=4096 conv=notrunc"), "{of_file}");
        let of_device = next("/dev/dax0.0");
        assert!(of_device.contains("--read-only") && !of_device.contains("dd "), "{of_device}");
    }

    #[test]
    fn a_look_at_a_device_names_no_rebuild() {
        let next = next(&MirrorFailure::LookAtDevice { path: "/dev/dax0.0".into() });
        assert!(next.contains("tidegate check --pmem /dev/dax0.0") && !next.contains("rebuild"), "{next}");
    }
}

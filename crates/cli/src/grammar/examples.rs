//! Examples of the program and of every command. The help and the manual pages show them.

/// What is done, and the line that does it.
pub(crate) type Example = (&'static str, &'static str);

/// The examples of the command `name`, or of the program if it is `tidegate`.
pub(crate) fn examples(name: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(of, _)| *of == name).map_or(&[], |(_, examples)| examples)
}

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "tidegate",
        &[
            ("Serve a volume of 1 GiB in the state directory, created if absent", "tidegate serve"),
            ("See which servers run", "tidegate list"),
            ("See what this machine lacks, or a database risks", "tidegate doctor"),
        ],
    ),
    (
        "create",
        &[
            ("Make a volume in persistent memory", "tidegate create --pmem /mnt/pmem/v.pmem --size 1G"),
            (
                "Make a volume that the loss of one memory does not harm",
                "tidegate create --pmem /mnt/pmem0/v.pmem --mirror /mnt/pmem1/v.pmem --size 1G",
            ),
            ("Put a region in front of a disk", "tidegate create --pmem /mnt/pmem/fast.pmem --size 1G --disk /dev/sdb"),
        ],
    ),
    (
        "serve",
        &[
            ("Serve a volume on a unix socket", "tidegate serve --pmem /mnt/pmem/v.pmem --listen unix:/tmp/v.sock"),
            (
                "Serve a slow memory with a write cache, and metrics",
                "tidegate serve --pmem /mnt/pmem/v.pmem --write-cache 64M --metrics tcp:127.0.0.1:9809",
            ),
            ("Serve the volumes of a configuration file", "tidegate serve --config /etc/tidegate/db.toml"),
        ],
    ),
    ("info", &[("Show what a volume is", "tidegate info /mnt/pmem/v.pmem")]),
    (
        "list",
        &[
            ("List this user's servers, runs and leftovers", "tidegate list"),
            ("List the servers, runs and leftovers of every user, for scripts", "sudo tidegate list --json"),
        ],
    ),
    (
        "stop",
        &[
            ("Stop the server of a volume", "tidegate stop /mnt/pmem/v.pmem"),
            ("Stop the server on a control socket", "tidegate stop --control /run/tidegate/db.control"),
        ],
    ),
    ("stat", &[("Show the growth of the counters every second", "tidegate stat --pmem /mnt/pmem/v.pmem --watch")]),
    (
        "top",
        &[
            ("Show all servers and mounts, those with the most dirty bytes first", "tidegate top --sort dirty"),
            ("Print the table once, for scripts", "tidegate top --once --json"),
            ("Answer Prometheus about all mounts", "tidegate top --metrics tcp:127.0.0.1:9810"),
        ],
    ),
    (
        "check",
        &[
            ("Check a volume", "tidegate check /mnt/pmem/v.pmem"),
            ("Check the pool of a mount that was killed", "tidegate check /mnt/pmem/app.pool"),
            ("See what a repair would do", "tidegate check /mnt/pmem/v.pmem --repair --dry-run"),
        ],
    ),
    (
        "rebuild",
        &[(
            "Make the other side anew after its memory was replaced",
            "tidegate rebuild --pmem /mnt/pmem0/v.pmem --mirror /mnt/pmem1/v.pmem",
        )],
    ),
    (
        "flush",
        &[
            ("Wait until the disk has all dirty blocks", "tidegate flush --pmem /mnt/pmem/fast.pmem --wait"),
            ("Write everything that a mount has back to its files", "tidegate flush /mnt/pmem/app.pool"),
        ],
    ),
    (
        "mode",
        &[("Write to the disk before a write is answered", "tidegate mode --pmem /mnt/pmem/fast.pmem write-through")],
    ),
    ("detach", &[("Release the disk", "tidegate detach --pmem /mnt/pmem/fast.pmem")]),
    (
        "attach",
        &[("Put the region in front of its disk again", "tidegate attach --pmem /mnt/pmem/fast.pmem --disk /dev/sdb")],
    ),
    ("resize", &[("Make the region larger", "tidegate resize --pmem /mnt/pmem/fast.pmem --size 2G")]),
    ("scrub", &[("Verify every cached block", "tidegate scrub --pmem /mnt/pmem/fast.pmem")]),
    (
        "salvage",
        &[("Save the dirty blocks to a new file", "tidegate salvage --pmem /mnt/pmem/fast.pmem --to saved.img")],
    ),
    ("replay", &[("Recover an ordered disk whose region is lost", "tidegate replay /dev/sdb --force")]),
    (
        "run",
        &[(
            "Run a database whose syncs complete in persistent memory",
            "tidegate run --pool /mnt/pmem/pool --root /srv/app -- sqlite3 /srv/app/app.db",
        )],
    ),
    (
        "explain",
        &[("Show which bytes of a database are in the pool", "tidegate explain /srv/app/app.db --range 0..1M")],
    ),
    (
        "status",
        &[
            ("Show the counters of a mount every second", "tidegate status /srv/app --watch"),
            ("Show what a run is doing", "tidegate status /mnt/pmem/pool"),
        ],
    ),
    (
        "mount",
        &[
            ("Mount a directory", "tidegate mount /srv/app-files /srv/app --pool /mnt/pmem/app.pool"),
            (
                "Mount a directory as a configuration file says",
                "tidegate mount --config /etc/tidegate/mounts.toml --name app",
            ),
            ("Try it without persistent memory", "tidegate mount ~/files ~/mnt --pool /dev/shm/try.pool --try"),
        ],
    ),
    ("umount", &[("End a mount", "tidegate umount /srv/app")]),
    ("recover", &[("Write back what a run left", "tidegate recover /mnt/pmem/pool")]),
    (
        "doctor",
        &[
            ("Examine this machine", "tidegate doctor"),
            ("Examine a cluster of PostgreSQL", "tidegate doctor /var/lib/postgresql/15/main"),
            ("Name the settings of MariaDB", "tidegate doctor /srv/mysql --settings /etc/mysql/my.cnf"),
        ],
    ),
    ("config", &[("Check a file before a server is started", "tidegate config check /etc/tidegate/db.toml")]),
    ("man", &[("Write the pages to a directory", "tidegate man --out ~/.local/share/man/man1")]),
    ("completions", &[("Complete command lines in this shell", "source <(tidegate completions bash)")]),
    (
        "help",
        &[
            ("Explain what survives a power loss", "tidegate help persistence-domains"),
            ("List the topics", "tidegate help topics"),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::*;
    use clap::Parser;

    #[test]
    fn every_example_is_a_line_of_the_grammar() {
        for (command, (_, example)) in
            EXAMPLES.iter().flat_map(|(of, examples)| examples.iter().map(move |one| (*of, one)))
        {
            let line = example.trim_start_matches("sudo ").trim_start_matches("source <(").trim_end_matches(')');
            let read = Program::try_parse_from(line.split_whitespace());
            assert!(read.is_ok(), "{example}: {read:?}");
            assert!(example.len() <= 90, "the help cuts it: {example}");
            assert!(command == "tidegate" || line.split_whitespace().nth(1) == Some(command), "{command}: {example}");
        }
    }
}

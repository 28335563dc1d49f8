//! Domains probed in made-up device trees: each outcome, and each unknown one.

use super::*;
use std::os::unix::fs::symlink;

const EXT4: u64 = 0xef53;
const PMEM: (u32, u32) = (259, 3);

/// A device tree: regions with devices below them, and the links by number that lead there.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().expect("a folder"))
    }

    fn folder(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(&path).expect("makes a folder");
        path
    }

    /// A device at `path` under the number `kind/number`.
    fn device(&self, path: &str, kind: &str, number: &str) {
        symlink(self.folder(path), self.folder(&format!("dev/{kind}")).join(number)).expect("links");
    }

    fn attribute(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("has a folder")).expect("makes a folder");
        fs::write(path, text).expect("writes");
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs { root: self.0.path().to_owned() }
    }

    /// The domain of a file on the DAX file system on [`PMEM`].
    fn dax_file(&self) -> Domain {
        self.sysfs().domain(Evidence { is_device: false, device: PMEM, file_system: EXT4, is_synchronous: true })
    }
}

const IN_CONTROLLER: Domain = Domain::PowerFail { caches_included: false };
const IN_CACHES: Domain = Domain::PowerFail { caches_included: true };

/// What `persistence_domain` says, and what follows. The kernel prints an empty line where it knows
/// nothing.
const PROMISES: [(Option<&str>, Domain); 5] = [
    (Some("memory_controller\n"), IN_CONTROLLER),
    (Some("cpu_cache\n"), IN_CACHES),
    (Some("\n"), Domain::ProcessCrash),
    (Some("unknown\n"), Domain::ProcessCrash),
    (None, Domain::ProcessCrash),
];

#[test]
fn a_dax_file_survives_what_its_region_promises() {
    for (promise, domain) in PROMISES {
        for device in
            ["devices/ndbus0/region1/namespace1.0/block/pmem1", "devices/ndbus0/region1/btt1.0/block/pmem1/pmem1p1"]
        {
            let tree = Tree::new();
            tree.device(device, "block", "259:3");
            if let Some(promise) = promise {
                tree.attribute("devices/ndbus0/region1/persistence_domain", promise);
            }
            // A neighbour's promise is not its own.
            tree.attribute("devices/ndbus0/region2/persistence_domain", "cpu_cache\n");
            assert_eq!(tree.dax_file(), domain, "{promise:?}");
        }
    }
}

#[test]
fn a_dax_device_survives_what_its_region_promises() {
    for (promise, domain) in PROMISES {
        let tree = Tree::new();
        tree.device("devices/ndbus0/region0/dax0.1/dax0.0", "char", "252:0");
        if let Some(promise) = promise {
            tree.attribute("devices/ndbus0/region0/persistence_domain", promise);
        }
        let evidence = Evidence { is_device: true, device: (252, 0), file_system: 0, is_synchronous: false };
        assert_eq!(tree.sysfs().domain(evidence), domain, "{promise:?}");
    }
}

#[test]
fn a_device_of_many_survives_what_all_of_them_survive() {
    let promise = |tree: &Tree, number: u32, promise: &str| {
        let part = format!("devices/ndbus0/region{number}/namespace{number}.0/block/pmem{number}");
        let part = tree.folder(&part);
        tree.attribute(&format!("devices/ndbus0/region{number}/persistence_domain"), promise);
        symlink(part, tree.folder("devices/virtual/block/dm-0/slaves").join(format!("pmem{number}"))).expect("links");
    };
    let cases = [
        ("cpu_cache\n", "cpu_cache\n", IN_CACHES),
        ("cpu_cache\n", "memory_controller\n", IN_CONTROLLER),
        ("cpu_cache\n", "\n", Domain::ProcessCrash),
    ];
    for (first, second, domain) in cases {
        let tree = Tree::new();
        tree.device("devices/virtual/block/dm-0", "block", "259:3");
        promise(&tree, 0, first);
        promise(&tree, 1, second);
        assert_eq!(tree.dax_file(), domain, "{first:?}, {second:?}");
    }
}

#[test]
fn without_a_tree_nothing_is_promised() {
    assert_eq!(Tree::new().dax_file(), Domain::ProcessCrash);
}

#[test]
fn a_file_that_is_not_on_dax_is_as_durable_as_its_file_system() {
    let tree = Tree::new();
    tree.device("devices/ndbus0/region0/namespace0.0/block/pmem0", "block", "259:3");
    tree.attribute("devices/ndbus0/region0/persistence_domain", "cpu_cache\n");
    let evidence = |file_system| Evidence { is_device: false, device: PMEM, file_system, is_synchronous: false };
    assert_eq!(tree.sysfs().domain(evidence(EXT4)), Domain::DiskFile);
    for file_system in [in_memory::TMPFS, in_memory::RAMFS, in_memory::HUGETLBFS] {
        assert_eq!(tree.sysfs().domain(evidence(file_system)), Domain::ProcessCrash);
    }
}

#[test]
fn only_dax_devices_have_a_size() {
    let tree = Tree::new();
    tree.device("devices/dax0.0", "char", "252:0");
    tree.attribute("devices/dax0.0/size", "1073741824\n");
    let number = rustix::fs::makedev(252, 0);
    assert_eq!(tree.sysfs().dax_device_bytes(number), None, "of no subsystem");
    symlink(tree.folder("bus/dax"), tree.folder("devices/dax0.0").join("subsystem")).expect("links");
    assert_eq!(tree.sysfs().dax_device_bytes(number), Some(1 << 30));
    tree.device("devices/mem/null", "char", "1:3");
    symlink(tree.folder("class/mem"), tree.folder("devices/mem/null").join("subsystem")).expect("links");
    assert_eq!(tree.sysfs().dax_device_bytes(rustix::fs::makedev(1, 3)), None, "of another subsystem");
}

#[test]
fn devices_of_persistent_memory_are_listed_with_their_domains() {
    let tree = Tree::new();
    assert_eq!(memory_devices(&tree.sysfs().root), []);
    let block = tree.folder("devices/ndbus0/region1/namespace1.0/block/pmem1");
    tree.attribute("devices/ndbus0/region1/persistence_domain", "cpu_cache\n");
    symlink(block, tree.folder("block").join("pmem1")).expect("links");
    symlink(tree.folder("devices/virtual/block/loop0"), tree.folder("block").join("loop0")).expect("links");
    symlink(tree.folder("devices/dax0.0"), tree.folder("bus/dax/devices").join("dax0.0")).expect("links");
    let device = |name: &str, domain| MemoryDevice { name: name.to_owned(), domain };
    let expected = [device("dax0.0", Domain::ProcessCrash), device("pmem1", IN_CACHES)];
    assert_eq!(memory_devices(&tree.sysfs().root), expected);
}

#[test]
fn domains_are_shown_by_the_names_documents_use() {
    let names = [IN_CACHES, IN_CONTROLLER, Domain::DiskFile, Domain::ProcessCrash, Domain::Volatile];
    let names = names.map(|domain| domain.to_string());
    assert_eq!(names, ["power-fail", "power-fail", "disk-file", "process-crash", "volatile"]);
}

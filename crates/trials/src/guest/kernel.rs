//! Debian's kernel, fetched once by name and unpacked beside the build; it is never installed.

use crate::artefacts::{MissingError, cache, hex, run};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules a guest may load, by the folder of the kernel's tree they lie in: persistent memory
/// as block and character devices, ext4 with what that needs, FUSE, disks, and the kernel's own
/// caches in front of them.
pub(super) const MODULES: [&str; 23] = [
    "drivers/nvdimm/libnvdimm.ko",
    "drivers/acpi/nfit/nfit.ko",
    "drivers/nvdimm/nd_btt.ko",
    "drivers/nvdimm/nd_pmem.ko",
    "drivers/dax/device_dax.ko",
    "drivers/dax/dax_pmem.ko",
    "lib/crc16.ko",
    "crypto/crc32c_generic.ko",
    "fs/mbcache.ko",
    "fs/jbd2/jbd2.ko",
    "fs/ext4/ext4.ko",
    "fs/fuse/fuse.ko",
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
    "drivers/md/dm-mod.ko",
    "drivers/md/dm-writecache.ko",
    "drivers/md/dm-flakey.ko",
    "lib/crc64.ko",
    "drivers/md/bcache/bcache.ko",
];

/// A kernel image and its modules.
pub(super) struct Kernel {
    pub(super) package: String,
    folder: PathBuf,
}

impl Kernel {
    /// The kernel that Debian's `linux-image-amd64` stands for today, fetched unless the cache has
    /// it.
    pub(super) fn fetch() -> Result<Kernel, MissingError> {
        let package = current_package()?;
        let cache = cache()?;
        let kernel = Kernel { folder: cache.join(folder_name(&package)), package };
        let lock_path = cache.join("kernel.lock");
        let lock = File::create(&lock_path).map_err(MissingError::file(&lock_path))?;
        lock.lock().map_err(MissingError::file(&lock_path))?;
        if !kernel.folder.exists() {
            kernel.download(&cache)?;
        }
        Ok(kernel)
    }

    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release()))
    }

    pub(super) fn module(&self, name: &str) -> PathBuf {
        self.folder.join("lib/modules").join(self.release()).join("kernel").join(name)
    }

    fn release(&self) -> &str {
        self.package.trim_start_matches("linux-image-")
    }

    fn download(&self, cache: &Path) -> Result<(), MissingError> {
        let fresh = cache.join(format!("{}.{}", self.package, std::process::id()));
        fs::create_dir_all(&fresh).map_err(MissingError::file(&fresh))?;
        run(Command::new("apt-get").args(["download", "--quiet", &self.package]).current_dir(&fresh), "apt")?;
        let wanted = MODULES.map(|module| format!("./lib/modules/{}/kernel/{module}", self.release()));
        let unpack =
            format!("dpkg --fsys-tarfile {}_*.deb | tar -x ./boot {} && rm {0}_*.deb", self.package, wanted.join(" "));
        run(Command::new("sh").args(["-e", "-c", &unpack]).current_dir(&fresh), "dpkg")?;
        fs::rename(&fresh, &self.folder).map_err(MissingError::file(&self.folder))
    }
}

/// The folder of a package unpacked with today's [`MODULES`]; other modules lie in another.
fn folder_name(package: &str) -> String {
    format!("{package}-{}", &hex(&Sha256::digest(MODULES.join(" ")))[..8])
}

fn current_package() -> Result<String, MissingError> {
    let mut question = Command::new("apt-cache");
    question.args(["depends", "--important", "linux-image-amd64"]);
    let answer = run(&mut question, "apt")?;
    answer
        .split_whitespace()
        .find(|word| word.starts_with("linux-image-") && *word != "linux-image-amd64")
        .map(str::to_owned)
        .ok_or_else(|| MissingError::Command {
            command: format!("{question:?}"),
            output: format!("no kernel package is known (apt-get update may be due): {answer}"),
        })
}

//! Debian's kernel, fetched once by name and unpacked beside the build; it is never installed.

use crate::artefacts::{MissingError, cache, hex, run};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules a guest may load, by the folder of the kernel's tree they lie in: persistent memory
/// as block and character devices, ext4 and XFS with what they need, FUSE, disks, those of servers,
/// and the kernel's own caches in front of them.
pub(super) const MODULES: [&str; 27] = [
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
    "lib/libcrc32c.ko",
    "fs/xfs/xfs.ko",
    "fs/fuse/fuse.ko",
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
    "drivers/block/nbd.ko",
    "drivers/block/ublk_drv.ko",
    "drivers/md/dm-mod.ko",
    "drivers/md/dm-writecache.ko",
    "drivers/md/dm-flakey.ko",
    "lib/crc64.ko",
    "drivers/md/bcache/bcache.ko",
];

/// Modules that Debian 12's own kernel does not have at all.
const ONLY_NEWER: [&str; 1] = ["drivers/block/ublk_drv.ko"];

/// The list of modules that a kernel has in its image.
const BUILT_IN: &str = "modules.builtin";

/// Which of Debian 12's kernels a guest runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestKernel {
    /// Debian 12's own: Linux 6.1.
    #[default]
    Stable,
    /// Linux 6.12, from the archive of security updates, without drivers of real machines.
    Newer,
}

impl GuestKernel {
    /// The package that depends on today's.
    fn metapackage(self) -> &'static str {
        match self {
            GuestKernel::Stable => "linux-image-amd64",
            GuestKernel::Newer => "linux-image-6.12-cloud-amd64",
        }
    }
}

/// A kernel image and its modules.
pub(super) struct Kernel {
    kind: GuestKernel,
    pub(super) package: String,
    folder: PathBuf,
}

impl Kernel {
    /// The kernel that Debian has today, fetched unless the cache has it.
    pub(super) fn fetch(kind: GuestKernel) -> Result<Kernel, MissingError> {
        let package = current_package(kind.metapackage())?;
        let cache = cache()?;
        let kernel = Kernel { kind, folder: cache.join(folder_name(&package)), package };
        let lock_path = cache.join("kernel.lock");
        let lock = File::create(&lock_path).map_err(MissingError::file(&lock_path))?;
        lock.lock().map_err(MissingError::file(&lock_path))?;
        if !kernel.folder.exists() {
            kernel.download(&cache)?;
        }
        Ok(kernel)
    }

    /// What QEMU boots.
    pub(super) fn image(&self) -> PathBuf {
        let unpacked = self.unpacked_image(&self.folder);
        if unpacked.exists() { unpacked } else { self.packed_image(&self.folder) }
    }

    /// The image of a package unpacked in `folder`: the kernel, compressed, behind what unpacks it.
    fn packed_image(&self, folder: &Path) -> PathBuf {
        folder.join("boot").join(format!("vmlinuz-{}", self.release()))
    }

    /// The kernel alone. A guest boots it with half the work: in software, unpacking takes longest.
    fn unpacked_image(&self, folder: &Path) -> PathBuf {
        folder.join("boot").join(format!("vmlinux-{}", self.release()))
    }

    /// Those of [`MODULES`] that it has beside its image.
    pub(super) fn modules(&self) -> Result<Vec<&'static str>, MissingError> {
        self.modules_beside_image(&self.tree(&self.folder))
    }

    pub(super) fn module(&self, name: &str) -> PathBuf {
        self.tree(&self.folder).join("kernel").join(name)
    }

    /// The folder of modules, of a package unpacked in `folder`.
    fn tree(&self, folder: &Path) -> PathBuf {
        folder.join("lib/modules").join(self.release())
    }

    fn release(&self) -> &str {
        self.package.trim_start_matches("linux-image-")
    }

    /// Those of [`MODULES`] that it has, and not in its image, by this folder of modules.
    fn modules_beside_image(&self, tree: &Path) -> Result<Vec<&'static str>, MissingError> {
        let list = tree.join(BUILT_IN);
        let built_in = fs::read_to_string(&list).map_err(MissingError::file(&list))?;
        let is_in_image = |module: &str| built_in.lines().any(|line| line.strip_prefix("kernel/") == Some(module));
        let lacks = |module: &str| self.kind == GuestKernel::Stable && ONLY_NEWER.contains(&module);
        Ok(MODULES.into_iter().filter(|module| !is_in_image(module) && !lacks(module)).collect())
    }

    fn download(&self, cache: &Path) -> Result<(), MissingError> {
        let fresh = cache.join(format!("{}.{}", self.package, std::process::id()));
        fs::create_dir_all(&fresh).map_err(MissingError::file(&fresh))?;
        run(Command::new("apt-get").args(["download", "--quiet", &self.package]).current_dir(&fresh), "apt")?;
        let shell = |line: &str| run(Command::new("sh").args(["-e", "-c", line]).current_dir(&fresh), "dpkg");
        let (package, tree) = (&self.package, format!("./lib/modules/{}", self.release()));
        shell(&format!("dpkg --fsys-tarfile {package}_*.deb >tar; tar -xf tar ./boot {tree}/{BUILT_IN}"))?;
        let wanted = self.modules_beside_image(&self.tree(&fresh))?;
        // Newer kernels have them compressed.
        let wanted: String = wanted.iter().map(|module| format!(" '{tree}/kernel/{module}*'")).collect();
        shell(&format!("tar -xf tar --wildcards {wanted}; rm tar {package}_*.deb"))?;
        shell("find lib -name '*.ko.xz' -exec busybox xz -d {} +")?;
        let image = self.packed_image(&fresh);
        let packed = fs::read(&image).map_err(MissingError::file(&image))?;
        if let Some(kernel) = payload(&packed).filter(|payload| payload.starts_with(&XZ_MAGIC)) {
            let (xz, unpacked) = (fresh.join("kernel.xz"), self.unpacked_image(&fresh));
            fs::write(&xz, kernel).map_err(MissingError::file(&xz))?;
            let line = format!("xz -dc kernel.xz >'{}'; rm kernel.xz", unpacked.display());
            run(Command::new("sh").args(["-e", "-c", &line]).current_dir(&fresh), "xz-utils")?;
        }
        fs::rename(&fresh, &self.folder).map_err(MissingError::file(&self.folder))
    }
}

/// What an archive of `xz` begins with.
const XZ_MAGIC: [u8; 6] = *b"\xfd7zXZ\0";

/// The compressed kernel in an image, without its length, which follows it: see the kernel's
/// `Documentation/arch/x86/boot.rst`. `None` if the image is of another form.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    let setup = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let (from, bytes) = (setup.checked_add(number(0x248)?)?, number(0x24c)?.checked_sub(4)?);
    image.get(from..from.checked_add(bytes)?)
}

/// The folder of a package unpacked with today's [`MODULES`] and the list of those in the image;
/// other ones lie in another.
fn folder_name(package: &str) -> String {
    format!("{package}-{}", &hex(&Sha256::digest(format!("{} {BUILT_IN} vmlinux", MODULES.join(" "))))[..8])
}

fn current_package(metapackage: &str) -> Result<String, MissingError> {
    let mut question = Command::new("apt-cache");
    question.args(["depends", "--important", metapackage]);
    let answer = run(&mut question, "apt")?;
    answer
        .split_whitespace()
        .find(|word| word.starts_with("linux-image-") && *word != metapackage)
        .map(str::to_owned)
        .ok_or_else(|| MissingError::Command {
            command: format!("{question:?}"),
            output: format!("no kernel package is known (apt-get update may be due): {answer}"),
        })
}

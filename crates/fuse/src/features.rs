//! The features that kernel and server agree on in INIT.

/// A set of features of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// No feature.
    pub const NONE: Features = Features(0);
    /// The kernel sends several reads of a file at once.
    pub const ASYNC_READ: Features = Features(1 << 0);
    /// The kernel leaves `O_TRUNC` to [`Operation::Open`](crate::Operation::Open).
    pub const ATOMIC_O_TRUNC: Features = Features(1 << 3);
    /// A write may be longer than a page.
    pub const BIG_WRITES: Features = Features(1 << 5);
    /// The server applies the umask, which it has to where directories have default ACLs.
    pub const DONT_MASK: Features = Features(1 << 6);
    /// Directories get [`Operation::Ioctl`](crate::Operation::Ioctl).
    pub const IOCTL_DIR: Features = Features(1 << 11);
    /// A listing of a directory looks its entries up.
    pub const READDIRPLUS: Features = Features(1 << 13);
    /// The kernel decides for each listing whether it looks entries up.
    pub const READDIRPLUS_AUTO: Features = Features(1 << 14);
    /// The kernel sends several direct reads and writes of a file at once.
    pub const ASYNC_DIO: Features = Features(1 << 15);
    /// The kernel looks several names up in a directory at once.
    pub const PARALLEL_DIROPS: Features = Features(1 << 18);
    /// The kernel checks permissions by POSIX ACLs.
    pub const POSIX_ACL: Features = Features(1 << 20);
    /// Reading the device after an abort fails with `ECONNABORTED` instead of `ENODEV`.
    pub const ABORT_ERROR: Features = Features(1 << 21);
    /// The reply to INIT says how many pages a request may have.
    pub const MAX_PAGES: Features = Features(1 << 22);
    /// The kernel caches the targets of symbolic links.
    pub const CACHE_SYMLINKS: Features = Features(1 << 23);
    /// The kernel drops cached pages only where it is told to.
    pub const EXPLICIT_INVAL_DATA: Features = Features(1 << 25);
    /// The server clears set-user-ID and set-group-ID where a request says so. Without it the
    /// kernel asks for `security.capability` before each write.
    pub const HANDLE_KILLPRIV_V2: Features = Features(1 << 28);
    /// [`SetXattr`](crate::SetXattr) says whether the server clears set-group-ID.
    pub const SETXATTR_EXT: Features = Features(1 << 29);
    /// INIT has a second word of features.
    pub const INIT_EXT: Features = Features(1 << 30);
    /// A notification can let an entry expire without dropping what is mounted below it.
    pub const EXPIRE_ONLY: Features = Features(1 << 35);
    /// A new server can have unanswered requests sent again.
    pub const RESEND: Features = Features(1 << 39);

    /// What a server of files wants that sees every change of them. `ATOMIC_O_TRUNC` is not among
    /// them: with it the kernel has a running program's file cut before it finds that it may not be
    /// written to.
    pub const FILE_SERVER: Features = Features::ASYNC_READ
        .with(Features::READDIRPLUS)
        .with(Features::READDIRPLUS_AUTO)
        .with(Features::ASYNC_DIO)
        .with(Features::PARALLEL_DIROPS)
        .with(Features::CACHE_SYMLINKS)
        .with(Features::EXPLICIT_INVAL_DATA)
        .with(Features::HANDLE_KILLPRIV_V2)
        .with(Features::POSIX_ACL)
        .with(Features::DONT_MASK)
        .with(Features::SETXATTR_EXT);

    /// Returns the set with these bits, as the protocol numbers them.
    pub const fn from_bits(bits: u64) -> Features {
        Features(bits)
    }

    /// Returns the set's bits, as the protocol numbers them.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the low and the high word of the bits.
    pub(crate) const fn words(self) -> [u32; 2] {
        let [a, b, c, d, e, f, g, h] = self.0.to_le_bytes();
        [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
    }

    /// Returns whether all of `other` is in the set.
    pub const fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the features in this set or in `other`.
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Returns the features in both sets.
    pub const fn and(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }

    /// Returns the features of this set that `other` lacks.
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }
}

//! A file of the VFS for Unix, below one of ours.

use crate::abi::{Code, FileObject, IOERR_SHORT_READ, IOERR_WRITE, Methods, OK, SYNC_NORMAL, Vfs};
use std::ffi::{c_char, c_int, c_void};

/// An open file of the VFS for Unix. Whoever makes it vouches for L4 and L1: it stays open while
/// this is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealFile(*mut FileObject);

impl RealFile {
    /// # Safety
    /// `object` is an open file of the VFS for Unix (L4), until it is closed.
    pub(crate) unsafe fn new(object: *mut FileObject) -> RealFile {
        RealFile(object)
    }

    pub(crate) fn object(self) -> *mut FileObject {
        self.0
    }

    pub(crate) fn methods(self) -> &'static Methods {
        // SAFETY: an open file has methods (L4), which are constants of SQLite.
        unsafe { &*(*self.0).methods }
    }

    pub(crate) fn close(self) -> Code {
        // SAFETY: L1 and L4.
        unsafe { (self.methods().close)(self.0) }
    }

    pub(crate) fn read(self, at: u64, buffer: &mut [u8]) -> Code {
        let (Ok(len), Ok(at)) = (c_int::try_from(buffer.len()), i64::try_from(at)) else { return IOERR_SHORT_READ };
        // SAFETY: L4, and the slice has so many bytes.
        unsafe { (self.methods().read)(self.0, buffer.as_mut_ptr().cast(), len, at) }
    }

    /// Writes any number of bytes. Of a longer piece the VFS for Unix takes the length modulo
    /// 128 KiB: SQLite hands it no more than a page, of 64 KiB at most.
    pub(crate) fn write(self, at: u64, data: &[u8]) -> Code {
        const PIECE_BYTES: usize = 1 << 16;
        for (number, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let place = i64::try_from(at + (number * PIECE_BYTES) as u64);
            let (Ok(len), Ok(at)) = (c_int::try_from(piece.len()), place) else { return IOERR_WRITE };
            // SAFETY: L4, and the slice has so many bytes.
            let code = unsafe { (self.methods().write)(self.0, piece.as_ptr().cast(), len, at) };
            if code != OK {
                return code;
            }
        }
        OK
    }

    pub(crate) fn truncate(self, len: u64) -> Code {
        let Ok(len) = i64::try_from(len) else { return IOERR_WRITE };
        // SAFETY: L4.
        unsafe { (self.methods().truncate)(self.0, len) }
    }

    pub(crate) fn sync(self, flags: c_int) -> Code {
        // SAFETY: L4.
        unsafe { (self.methods().sync)(self.0, flags) }
    }

    pub(crate) fn sync_normal(self) -> Code {
        self.sync(SYNC_NORMAL)
    }

    pub(crate) fn len(self) -> Result<u64, Code> {
        let mut len = 0_i64;
        // SAFETY: L4, and the place is this function's own.
        match unsafe { (self.methods().file_size)(self.0, &raw mut len) } {
            OK => Ok(u64::try_from(len).unwrap_or(0)),
            code => Err(code),
        }
    }

    /// # Safety
    /// `argument` is what the operation wants.
    pub(crate) unsafe fn control(self, operation: c_int, argument: *mut c_void) -> Code {
        // SAFETY: L4, and the caller's.
        unsafe { (self.methods().file_control)(self.0, operation, argument) }
    }
}

/// A file of the VFS for Unix in memory of its own. It is closed by [`OwnFile::close`].
pub(crate) struct OwnFile {
    file: RealFile,
    /// Where the object lies.
    _memory: Vec<u64>,
}

impl OwnFile {
    /// Opens `name`. Returns the flags that it was opened with.
    ///
    /// # Safety
    /// `unix` is the VFS for Unix (L4), and `name` one of SQLite's names (L2).
    pub(crate) unsafe fn open(unix: *mut Vfs, name: *const c_char, flags: c_int) -> Result<(OwnFile, c_int), Code> {
        // SAFETY: L4.
        let (bytes, open) = unsafe { ((*unix).file_bytes, (*unix).open) };
        let mut memory = vec![0_u64; usize::try_from(bytes).unwrap_or(0).div_ceil(8)];
        let object = memory.as_mut_ptr().cast::<FileObject>();
        let mut given = flags;
        // SAFETY: L4 and L2, and the object has the bytes that the VFS asks for.
        let code = unsafe { open(unix, name, object, flags, &raw mut given) };
        // SAFETY: it is open if the call succeeded. The vector's bytes stay where they are.
        let own = || OwnFile { file: unsafe { RealFile::new(object) }, _memory: memory };
        if code == OK { Ok((own(), given)) } else { Err(code) }
    }

    pub(crate) fn file(&self) -> RealFile {
        self.file
    }

    pub(crate) fn close(self) -> Code {
        self.file.close()
    }
}

/// The result of a call as SQLite tells it.
pub(crate) fn result(code: Code) -> Result<(), Code> {
    if code == OK { Ok(()) } else { Err(code) }
}

/// A result as SQLite wants it.
pub(crate) fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(OK)
}

//! Devices that hand verbs on to another device unchanged.

/// Hands the named verbs of [`BlockDevice`](crate::BlockDevice) on to another device:
/// `forward!(self => self.device; read, extent);` inside of an `impl`.
///
/// The trait has no defaults, so that a device cannot leave a verb out by mistake; this names each
/// verb that it leaves to another.
#[macro_export]
macro_rules! forward {
    ($self:ident => $to:expr; $($verb:ident),+) => { $($crate::forward! { @$verb $self, $to })+ };
    (@geometry $self:ident, $to:expr) => {
        fn geometry(&$self) -> $crate::Geometry {
            $to.geometry()
        }
    };
    (@read $self:ident, $to:expr) => {
        fn read(&$self, at: $crate::Lba, out: &mut [u8]) -> $crate::Result<()> {
            $to.read(at, out)
        }
    };
    (@write $self:ident, $to:expr) => {
        fn write(&$self, at: $crate::Lba, data: &[u8], durability: $crate::Durability) -> $crate::Result<()> {
            $to.write(at, data, durability)
        }
    };
    (@flush $self:ident, $to:expr) => {
        fn flush(&$self) -> $crate::Result<()> {
            $to.flush()
        }
    };
    (@discard $self:ident, $to:expr) => {
        fn discard(&$self, range: $crate::LbaRange) -> $crate::Result<()> {
            $to.discard(range)
        }
    };
    (@write_zeroes $self:ident, $to:expr) => {
        fn write_zeroes(&$self, range: $crate::LbaRange, durability: $crate::Durability) -> $crate::Result<()> {
            $to.write_zeroes(range, durability)
        }
    };
    (@extent $self:ident, $to:expr) => {
        fn extent(&$self, range: $crate::LbaRange) -> $crate::Result<$crate::Extent> {
            $to.extent(range)
        }
    };
}

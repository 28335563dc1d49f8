//! POSIX ACLs: the kernel checks them, and SOURCE keeps them as extended attributes.
//!
//! The attribute's form is the kernel's (`include/uapi/linux/posix_acl_xattr.h`): a version of 4
//! bytes, then 8 bytes an entry, all little-endian.

use rustix::io::{Errno, Result};
use std::ffi::CStr;

/// The ACL of a file or directory.
pub const ACCESS: &CStr = c"system.posix_acl_access";

/// The ACL of what is made in a directory.
pub const DEFAULT: &CStr = c"system.posix_acl_default";

/// Tags of entries, whose permissions a mode has too.
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Whether an extended attribute of that name is an ACL.
pub fn is_acl(name: &CStr) -> bool {
    [ACCESS, DEFAULT].contains(&name)
}

/// The permissions that a file with this ACL shows.
pub fn mode(acl: &[u8]) -> Result<u32> {
    let mut copy = acl.to_vec();
    let mut of_group = [None; 2];
    let mut mode = 0;
    for (tag, permissions) in entries(&mut copy)? {
        let permissions = u32::from(permissions[0] & 0o7);
        match tag {
            USER_OBJ => mode |= permissions << 6,
            OTHER => mode |= permissions,
            MASK => of_group[0] = Some(permissions),
            GROUP_OBJ => of_group[1] = Some(permissions),
            _ => {}
        }
    }
    let [mask, group] = of_group;
    Ok(mode | mask.or(group).ok_or(Errno::INVAL)? << 3)
}

/// Has a file with this ACL show these permissions, as a change of its mode does.
pub fn set_mode(acl: &mut [u8], mode: u32) -> Result<()> {
    let has_mask = entries(acl)?.any(|(tag, _)| tag == MASK);
    for (tag, permissions) in entries(acl)? {
        let shift = match tag {
            USER_OBJ => 6,
            MASK => 3,
            GROUP_OBJ if !has_mask => 3,
            OTHER => 0,
            _ => continue,
        };
        *permissions = [(mode >> shift & 0o7) as u8, 0];
    }
    Ok(())
}

/// The tag of each entry, and the two bytes of its permissions.
fn entries(acl: &mut [u8]) -> Result<impl Iterator<Item = (u16, &mut [u8; 2])>> {
    let (_version, entries) = acl.split_at_mut_checked(4).ok_or(Errno::INVAL)?;
    let entries = entries.as_chunks_mut::<8>().0.iter_mut();
    Ok(entries.map(|[low, high, permissions @ .., _, _, _, _]| (u16::from_le_bytes([*low, *high]), permissions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u8)]) -> Vec<u8> {
        let entries = entries.iter().flat_map(|(tag, permissions)| {
            let [low, high] = tag.to_le_bytes();
            [low, high, *permissions, 0, 7, 0, 0, 0]
        });
        [2, 0, 0, 0].into_iter().chain(entries).collect()
    }

    #[test]
    fn the_mask_is_what_a_mode_shows_of_groups() {
        let mut acl = acl(&[(USER_OBJ, 7), (0x02, 6), (GROUP_OBJ, 4), (MASK, 6), (OTHER, 1)]);
        assert_eq!(mode(&acl), Ok(0o761));
        set_mode(&mut acl, 0o640).expect("an ACL");
        assert_eq!(mode(&acl), Ok(0o640));
        // The permissions of named users and of the owning group stay.
        assert_eq!([acl[14], acl[22], acl[30]], [6, 4, 4]);
    }

    #[test]
    fn without_a_mask_the_group_shows() {
        let mut acl = acl(&[(USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0)]);
        assert_eq!(mode(&acl), Ok(0o640));
        set_mode(&mut acl, 0o711).expect("an ACL");
        assert_eq!(mode(&acl), Ok(0o711));
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        assert_eq!(mode(&[]), Err(Errno::INVAL));
        assert_eq!(mode(&[2, 0, 0, 0]), Err(Errno::INVAL));
        assert_eq!(set_mode(&mut [2, 0], 0), Err(Errno::INVAL));
    }
}

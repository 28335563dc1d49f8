//! The kernel's part of a request that goes through a file. No paper repeated here tells it, so it
//! is the literature's.

/// Nanoseconds of each part that a request passes before it reaches the device's driver: those of a
/// random read of 512 bytes from an Optane disk, by Zhong et al., "XRP: In-Kernel Storage Functions
/// with eBPF" (OSDI 2022), Table 1.
const PATH_NS: [(&str, u64); 4] =
    [("crossing into the kernel", 351), ("system call", 199), ("Ext4", 2006), ("block layer", 379)];

/// What the system call, the file system and the block layer take of a request, in nanoseconds.
pub fn path_ns() -> u64 {
    PATH_NS.iter().map(|(_, ns)| ns).sum()
}

/// The path in words, for the notes of figures.
pub(crate) fn path_in_words() -> String {
    let parts: Vec<String> = PATH_NS.iter().map(|(part, ns)| format!("{part} {ns}")).collect();
    format!("{} ns of each request pass before it reaches the device (XRP, OSDI 2022: {})", path_ns(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_sum_of_its_parts_and_says_so() {
        assert_eq!(path_ns(), 2935);
        assert!(path_in_words().starts_with("2935 ns") && path_in_words().contains("Ext4 2006"));
    }
}

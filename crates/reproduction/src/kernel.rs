//! The kernel's part of a request that goes through a file. No paper repeated here tells it, so it
//! is the literature's.

/// Nanoseconds of each part that a request passes above the device's driver, there and back: those
/// of a random read of 512 bytes from an Optane disk, by Zhong et al., "XRP: In-Kernel Storage
/// Functions with eBPF" (OSDI 2022), Table 1.
const PATH_NS: [(&str, u64); 4] =
    [("crossing into the kernel", 351), ("system call", 199), ("Ext4", 2006), (BLOCK_LAYER, 379)];
const BLOCK_LAYER: &str = "block layer";

/// A write's way to the driver and its way back, in nanoseconds: medians of 60,000 direct writes of
/// 4 KiB to a file of Ext4 on zram, whose driver serves a request within the call as that of a
/// block device in persistent memory does (docs/research/calibration.md). Only their ratio is used.
const THERE_AND_BACK_NS: (u64, u64) = (1602, 771);

/// The part of `path_ns` that passes before a request reaches the driver, and the part after it.
pub fn there_and_back(path_ns: u64) -> (u64, u64) {
    let (there, back) = THERE_AND_BACK_NS;
    let before = path_ns * there / (there + back);
    (before, path_ns - before)
}

/// What the system call, the file system and the block layer take of a request, in nanoseconds.
pub fn path_ns() -> u64 {
    PATH_NS.iter().map(|(_, ns)| ns).sum()
}

/// What is left of `path_ns` for a request to a file of Ext4-DAX, which passes no block layer.
pub fn past_the_block_layer(path_ns: u64) -> u64 {
    let passed: u64 = PATH_NS.iter().filter(|(part, _)| *part != BLOCK_LAYER).map(|(_, ns)| ns).sum();
    (path_ns * passed).div_ceil(self::path_ns())
}

/// The path in words, for the notes of figures.
pub(crate) fn path_in_words() -> String {
    let parts: Vec<String> = PATH_NS.iter().map(|(part, ns)| format!("{part} {ns}")).collect();
    format!("{} ns of each request pass above the device (XRP, OSDI 2022: {})", path_ns(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_sum_of_its_parts_and_says_so() {
        assert_eq!(path_ns(), 2935);
        assert!(path_in_words().starts_with("2935 ns") && path_in_words().contains("Ext4 2006"));
        assert_eq!(past_the_block_layer(path_ns()), 351 + 199 + 2006);
        assert_eq!(there_and_back(path_ns()), (1981, 954));
        assert_eq!(there_and_back(0), (0, 0));
    }
}

//! The machine a report was measured on, without which its figures have no meaning.

use serde::Serialize;

/// What the reader of a report has to know of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's own name.
    pub processor: String,
    /// Cores this process may run on.
    pub cores: usize,
    /// The kernel's name and release.
    pub kernel: String,
    /// How bytes are stored and flushed here.
    pub instructions: String,
    /// The pages of the regions that are measured.
    pub pages: &'static str,
}

impl Machine {
    /// The machine this runs on.
    pub fn this() -> Machine {
        let uname = rustix::system::uname();
        Machine {
            processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: crate::workload::cores().len(),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            instructions: tidegate_media::MappedRegion::anonymous(4096)
                .map_or_else(|error| error.to_string(), |region| region.instructions().to_string()),
            pages: crate::medium::MemoryPath::pages(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { processor, cores, kernel, instructions, pages } = self;
        write!(f, "{processor}, {cores} cores, {kernel}; {instructions}; regions in memory of {pages}")
    }
}

fn processor() -> Option<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let named = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(named.trim_start_matches([' ', '\t', ':']).to_owned())
}

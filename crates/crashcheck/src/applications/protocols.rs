//! The protocols, by what they are for.

mod databases;
mod logs;
mod names;

use crate::applications::promise::Protocol;

/// Every protocol.
pub const PROTOCOLS: [&[Protocol]; 3] = [&names::PROTOCOLS, &logs::PROTOCOLS, &databases::PROTOCOLS];

/// Bytes of a record.
const R: u64 = 64;
/// Bytes of a file that is replaced as a whole: several blocks of the pool, and no multiple of one.
const F: u64 = 640;
/// Bytes of a page.
const P: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::PROTOCOLS;
    use std::collections::BTreeSet;

    #[test]
    fn each_protocol_has_a_name_of_its_own_and_a_promise() {
        let all = PROTOCOLS.concat();
        let names: BTreeSet<&str> = all.iter().map(|protocol| protocol.name).collect();
        assert!(names.len() == all.len() && all.len() >= 50, "{} names of {}", names.len(), all.len());
        assert!(all.iter().all(|protocol| !protocol.promise.is_empty() && !protocol.act.is_empty()));
    }
}

//! `tidegate recover`: what a mount or run left in its pool, brought to its files without mounting
//! them.

use crate::commands::files::mount_pool;
use crate::errors::{Exit, Failure};
use crate::grammar::Recover;
use crate::output;
use tidegate_file_service::{self as file_service, Unplaced};

/// Runs `tidegate recover`.
pub(crate) fn run(args: &Recover, json: bool) -> Result<Exit, Failure> {
    let pool = file_service::pool_of(&args.pool);
    let unplaced = if args.force { Unplaced::Salvage } else { Unplaced::Retain };
    let (answer, exit) = mount_pool::recover(&pool, unplaced, output::teller(json))?;
    output::end_with(&answer, json, exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_file_service::ServiceFailure;

    #[test]
    fn a_pool_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        let answer = run(&Recover { pool: pool.clone(), force: false }, false);
        assert!(matches!(answer, Err(Failure::Files(ServiceFailure::NoPool { .. }))), "{answer:?}");
        assert!(!pool.exists());
    }
}

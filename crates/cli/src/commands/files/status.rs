//! `tidegate status`: what a mount or run is doing, asked of its service.

use crate::commands::files::mount_status;
use crate::errors::{Exit, Failure};
use crate::grammar;
use tidegate_file_service::{self as file_service, ServiceFailure};

/// Runs `tidegate status`.
pub(crate) fn run(args: &grammar::Status, json: bool) -> Result<Exit, Failure> {
    let pool = file_service::pool_of(&args.pool);
    if !pool.exists() {
        return Err(ServiceFailure::NoPool { pool }.into());
    }
    if args.watch { mount_status::watch(&pool, json) } else { mount_status::show(&pool, json) }
}

//! Commands about files and the programs that use them.

pub(crate) mod background_mount;
pub(crate) mod check_pool;
pub(crate) mod explain;
pub(crate) mod mount;
pub(crate) mod mount_config;
pub(crate) mod mount_helper;
pub(crate) mod mount_pool;
pub(crate) mod mount_status;
pub(crate) mod recover;
pub(crate) mod run;
pub(crate) mod status;

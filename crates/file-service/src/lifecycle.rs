//! Mounts from their beginning to their end, and the recovery of pools.

pub(crate) mod belonging;
pub(crate) mod checked;
pub(crate) mod control;
pub(crate) mod failure;
pub(crate) mod found;
pub(crate) mod mounted;
pub(crate) mod older_kernel;
pub(crate) mod opening;
pub(crate) mod pool_of;
pub(crate) mod recovered;
pub(crate) mod run;
pub(crate) mod served_mount;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod unmounted;

//! Commands about volumes: make, serve, show, stop and check them.

pub(crate) mod check;
mod check_cache;
mod consent;
pub(crate) mod create;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod rebuild;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod stop;
pub(crate) mod top;

//! Commands about files and the programs that use them.

pub(crate) mod recover;
pub(crate) mod run;
pub(crate) mod status;

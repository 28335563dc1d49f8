//! Clusters of nodes in network namespaces of this machine: each node has processes, mounts and a
//! network of its own, so that its services can be killed by themselves.
//!
//! [`nodes`] are the machines and what their files lie on; [`gluster`] and [`hdfs`] are
//! clusters of others on them.

mod disks;
pub mod gluster;
pub mod hdfs;
mod machine;
pub mod nodes;

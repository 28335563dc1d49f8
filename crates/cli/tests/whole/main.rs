//! The program as a whole, in processes of its own: what it refuses, and what it serves.
//!
//! Nothing here waits for time to pass: a server says when it serves, and its output closes when it
//! ends.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod access;
mod attached;
mod configured;
mod damaged;
mod dashboard;
mod disk;
mod encrypted;
mod examined;
mod foreign;
mod hostile;
mod limits;
mod listed;
mod logs;
mod manual;
mod metrics_page;
mod metrics_token;
mod mirrored;
mod odd_paths;
mod packaged;
mod program;
mod refusals;
mod reloaded;
mod sandboxed;
mod served;
mod stopped;
mod supervised;
mod surface;
mod transit;
mod watched;

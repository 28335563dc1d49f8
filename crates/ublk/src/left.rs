//! Devices that a server left: the block device is there, and its requests wait.

use crate::claim::{Mark, numbers};
use crate::control::Control;
use crate::driver::{DeviceRecord, DeviceState};
use crate::node::block_device;
use rustix::process::{Pid, test_kill_process};
use serde::Serialize;
use std::path::PathBuf;

/// A device whose server has ended. Its requests wait until its volume is served again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftDevice {
    /// The block device.
    #[serde(with = "tidegate_host::json_path")]
    pub path: PathBuf,
    /// The process that served it.
    pub server_pid: u32,
}

/// The devices that servers of Tidegate left, as far as this user may ask: root may. Changes
/// nothing, and asks no driver where there is no device.
pub fn left_devices() -> Vec<LeftDevice> {
    let numbers = numbers();
    if numbers.is_empty() {
        return Vec::new();
    }
    let Ok(mut control) = Control::open() else { return Vec::new() };
    let records = numbers.into_iter().filter_map(|number| control.info(number).ok().flatten());
    records.filter_map(|record| left(&record, is_running)).collect()
}

/// The device of this record, if it was left.
fn left(record: &DeviceRecord, is_running: impl Fn(u32) -> bool) -> Option<LeftDevice> {
    let server_pid = u32::try_from(record.server_pid.get()).ok()?;
    let is_left = match record.state() {
        DeviceState::Quiesced => true,
        // The kernel may take a while to see that.
        DeviceState::Live => !is_running(server_pid),
        DeviceState::Dead | DeviceState::Unknown => false,
    };
    (Mark::is_one(record.mark.get()) && is_left)
        .then(|| LeftDevice { path: block_device(record.number.get()), server_pid })
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_a_server_that_ended_is_left_and_no_other() {
        let record = |state: u16, mark: u64| DeviceRecord {
            number: 3.into(),
            server_pid: 77.into(),
            state: state.into(),
            mark: mark.into(),
            ..DeviceRecord::default()
        };
        let ours = Mark::of([5; 16], 1, 2).0;
        let device = Some(LeftDevice { path: "/dev/ublkb3".into(), server_pid: 77 });
        let (dead, live, quiesced) = (0, 1, 2);
        assert_eq!(left(&record(quiesced, ours), |_| true), device, "another process has its number now");
        assert_eq!(left(&record(live, ours), |pid| pid != 77), device);
        assert_eq!(left(&record(live, ours), |pid| pid == 77), None);
        assert_eq!(left(&record(dead, ours), |_| false), None);
        assert_eq!(left(&record(quiesced, 7), |_| false), None, "of another program");
        assert!(is_running(std::process::id()) && !is_running(0));
    }
}

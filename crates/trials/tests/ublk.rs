//! Volumes as block devices of a guest's Linux, by ublk. The server runs inside the guest, on
//! persistent memory; it is killed with SIGKILL under load and started again. Programs and file
//! systems on its devices wait meanwhile: they see no error and lose nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use tidegate_trials::artefacts::announce;
use tidegate_trials::guest::{Guest, GuestKernel, Transcript, dax_image};

/// Files that are written and synced, one after the other.
const FILES: u64 = 28;
/// Kills of the server meanwhile, each followed by one while the next server takes its devices
/// over.
const KILLS: u64 = 3;
/// Programs that write to the second device at a time: more than it takes requests.
const WRITERS: u64 = 100;

/// A server with two volumes: one in persistent memory, whose writes are durable when they are
/// answered, and one with a write cache.
const CONFIG: &str = r#"
listen = "unix:/run/tidegate.sock"
[[volume]]
name = "files"
pmem = "/mnt/files.pmem"
write_cache = "off"
ublk = true
[[volume]]
name = "blocks"
pmem = "/mnt/blocks.pmem"
write_cache = "4M"
ublk = 7
"#;

/// Words of the scripts. A script that fails would wait for ever for devices whose server is dead,
/// as the guest ends with a sync: it ends without one.
const WORDS: &str = r#"
trap 'status=$?; [ $status = 0 ] || { cat /run/*.out; dmesg | tail -n 20; echo "@@END $status"; poweroff -n -f; }' EXIT
mkdir -p /run /disk
begin() { # OUT ARGUMENTS...
    out=/run/$1.out
    shift
    : >$out
    /tidegate -v "$@" >$out 2>&1 &
    server=$!
    until grep -q '^serving' $out; do
        kill -0 $server || { echo "no server: $(cat $out)"; exit 9; }
        sleep 0.05
    done
}
hasty() { # a server that has taken one device over, and not yet the other
    : >/run/hasty.out
    /tidegate -v serve --config /server.toml >/run/hasty.out 2>&1 &
    server=$!
    until grep -q 'took over' /run/hasty.out; do kill -0 $server; done
}
end() { kill -TERM $server; wait $server; echo "ended $?"; }
killed() { kill -KILL $server; wait $server || true; }
refused() { # what OUT ARGUMENTS...
    what=$1
    shift
    status=0
    "$@" >/run/refused.out 2>&1 || status=$?
    echo "refused $what $status $(cat /run/refused.out | tr '\n' ' ')"
}
errors() { dmesg | grep -c -i -e 'i/o error' -e 'ext4-fs error' -e 'cut here' -e 'bug:' || true; }
"#;

const LIFE: &str = r#"
mount_dax 0
/tidegate create --pmem /mnt/files.pmem --size 96M >/dev/null
/tidegate create --pmem /mnt/blocks.pmem --size 48M >/dev/null
refused no-driver /tidegate serve --pmem /mnt/files.pmem --ublk
load ublk_drv
mkdir -m 777 /run/nobody
refused no-root su nobody -c '/tidegate create --pmem /run/nobody/v --size 32M >/dev/null; HOME=/run/nobody /tidegate serve --pmem /run/nobody/v --write-cache off --ublk --listen unix:/run/nobody/s'
begin first serve --config /server.toml
disk=$(grep -o 'mount /dev/ublkb[0-9]*' /run/first.out | head -n 1 | cut -d' ' -f2)
b=/sys/block/${disk##*/}/queue
echo "disk $(cat $b/logical_block_size) $(cat $b/physical_block_size) $(cat $b/write_cache) fua $(cat $b/fua)"
echo "discard $(cat $b/discard_max_bytes) zeroes $(cat $b/write_zeroes_max_bytes)"
b=/sys/block/ublkb7/queue
echo "cached $(cat $b/write_cache) fua $(cat $b/fua) requests $(cat $b/nr_requests)"
/tidegate list | grep -o '/dev/ublkb[0-9]*' | sed 's/^/listed /'
mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 $disk
mount -t ext4 $disk /disk
refused second-server /tidegate serve --pmem /mnt/files.pmem --ublk
/tidegate create --pmem /run/other.pmem --size 32M >/dev/null
refused taken-number /tidegate serve --pmem /run/other.pmem --ublk=7 --listen unix:/run/other.sock
/guest-device /dev/ublkb7 WRITERS 16 /run/enough >/run/blocks 2>&1 &
blocks=$!
: >/run/made
files() {
    i=0
    while [ $i -lt FILES ]; do
        dd if=/dev/urandom of=/disk/$i bs=8k count=5 conv=fsync 2>/dev/null || exit 1
        echo "$i $(sha256sum </disk/$i)" >>/run/made
        i=$((i + 1))
    done
}
files &
files=$!
kill=1
while [ $kill -le KILLS ]; do
    until [ $(wc -l </run/made) -ge $((kill * FILES / (KILLS + 1))) ]; do
        kill -0 $files
        sleep 0.05
    done
    killed
    echo "waiting $(/tidegate list | grep -c "^left .*/dev/ublkb.*requests wait: process $server served it")"
    hasty
    killed
    begin again serve --config /server.toml
    echo "took-over $(grep -c 'took over' /run/again.out)"
    kill=$((kill + 1))
done
wait $files
: >/run/enough
wait $blocks
echo "blocks $(cat /run/blocks)"
echo "made $(sha256sum </run/made)"
fstrim /disk
echo "errors $(errors)"
end
echo "in-use $(grep -c "is in use: it is mounted at /disk" /run/again.out) $(ls /dev/ublkb*)"
dd if=/dev/urandom of=/disk/late bs=8k count=5 conv=fsync 2>/dev/null &
late=$!
begin last serve --config /server.toml
wait $late
echo "late $(wc -c </disk/late)"
umount /disk
e2fsck -fn $disk
mount -t ext4 -o ro $disk /disk
i=0
while [ $i -lt FILES ]; do
    echo "$i $(sha256sum </disk/$i)"
    i=$((i + 1))
done >/run/found
umount /disk
echo "found $(sha256sum </run/found)"
echo "errors $(errors)"
end
echo "left $(ls /dev | grep -c ublkb)"
for volume in files blocks; do /tidegate check --pmem /mnt/$volume.pmem >/dev/null; done
begin look serve --pmem /mnt/files.pmem --read-only --ublk=3 --listen unix:/run/look.sock
echo "read-only $(blockdev --getro /dev/ublkb3)"
mount -t ext4 -o ro /dev/ublkb3 /disk
killed
refused other-form /tidegate serve --pmem /mnt/files.pmem --write-cache off --ublk --listen unix:/run/look.sock
begin look serve --pmem /mnt/files.pmem --read-only --ublk=3 --listen unix:/run/look.sock
echo "read $(ls /disk | wc -l)"
umount /disk
killed
begin again serve --pmem /mnt/files.pmem --write-cache off --ublk=4 --listen unix:/run/look.sock
echo "devices $(ls /dev | grep ublkb | tr '\n' ' ')"
end
parted() { begin parted serve --pmem /run/other.pmem --write-cache off --ublk=5 --listen unix:/run/other.sock; }
parted
printf '\0\0\0\0\203\0\0\0\10\0\0\0\100\0\0\0' | dd of=/dev/ublkb5 bs=1 seek=446 conv=notrunc,fsync 2>/dev/null
printf '\125\252' | dd of=/dev/ublkb5 bs=1 seek=510 conv=notrunc,fsync 2>/dev/null
blockdev --rereadpt /dev/ublkb5
sleep 600 </dev/ublkb5p1 &
reader=$!
end
echo "quiet $(grep -c 'is in use: process .* has it open' /run/parted.out)"
kill $reader
parted
end
several() { begin several serve --pmem /run/other.pmem --write-cache off --ublk=6 --ublk-queues 2 --listen unix:/run/other.sock; }
several
echo "queues $(ls /sys/block/ublkb6/mq | wc -l) warned $(grep -c 'before Linux 6.16' /run/several.out)"
/guest-device /dev/ublkb6 8 100 >/run/several-writes 2>&1 &
writers=$!
killed
several
echo "several $(grep -c 'took over' /run/several.out)"
wait $writers
end
echo "left $(ls /dev | grep -c ublkb)"
umount /mnt
"#;

/// The lines that begin with `word`, without it.
fn told<'a>(said: &'a Transcript, word: &str) -> Vec<&'a str> {
    said.lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
}

fn guest(kernel: GuestKernel, image: &Path) -> Guest {
    let mut guest = Guest::new();
    guest.kernel(kernel);
    guest.dimm(image, 0);
    guest.programs().unwrap_or_else(|error| panic!("{error}"));
    guest.program("tidegate-trials/guest-device").unwrap_or_else(|error| panic!("{error}"));
    for tool in ["mkfs.ext4", "e2fsck"] {
        guest.tool(tool, "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
    }
    guest.file("etc/mke2fs.conf", std::fs::read("/etc/mke2fs.conf").expect("apt-get install e2fsprogs"));
    guest.file("server.toml", CONFIG);
    guest.file("etc/passwd", "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
    guest.script(WORDS);
    guest
}

/// What was refused as `word`: the exit code and the message.
fn refusal<'a>(said: &'a Transcript, word: &str) -> &'a str {
    told(said, &format!("refused {word}"))[0]
}

fn run(guest: Guest) -> Transcript {
    guest.run().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn devices_outlive_their_killed_server_and_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("dimm");
    dax_image(&image, 256 << 20);
    let mut guest = guest(GuestKernel::Newer, &image);
    let numbers = [("FILES", FILES), ("KILLS", KILLS), ("WRITERS", WRITERS)];
    let with = |text: String, (word, number): (&str, u64)| text.replace(word, &number.to_string());
    guest.script(&numbers.into_iter().fold(LIFE.to_owned(), with));
    let said = run(guest);
    for (word, code, next) in [
        ("no-driver", "5", "modprobe ublk_drv"),
        ("no-root", "5", "run it as root"),
        ("second-server", "4", "is in use"),
        ("taken-number", "4", "the device number 7 is taken"),
        ("other-form", "4", "read-only is not the same now"),
    ] {
        let message = refusal(&said, word);
        assert!(message.starts_with(&format!("{code} tidegate: error:")) && message.contains(next), "{message}");
    }
    assert_eq!(told(&said, "disk"), ["4096 4096 write through fua 0"]);
    assert_eq!(told(&said, "discard"), ["1073741824 zeroes 67108864"]);
    assert_eq!(told(&said, "cached"), ["write back fua 1 requests 63"]);
    assert_eq!(told(&said, "listed").len(), 2, "{:?}", told(&said, "listed"));
    assert_eq!(told(&said, "waiting"), vec!["2"; usize::try_from(KILLS).unwrap()]);
    assert_eq!(told(&said, "took-over"), vec!["2"; usize::try_from(KILLS).unwrap()]);
    let written: u64 = told(&said, "blocks written")[0].parse().unwrap();
    announce(&format!("ublk: {KILLS} kills, {written} writes by {WRITERS} programs at a time"));
    assert!(written >= WRITERS * 16);
    assert_eq!(told(&said, "made"), told(&said, "found"));
    assert_eq!(told(&said, "errors"), ["0", "0"]);
    assert!(told(&said, "ended").iter().all(|code| *code == "0"), "{:?}", told(&said, "ended"));
    assert_eq!(told(&said, "in-use"), ["1 /dev/ublkb0"]);
    assert_eq!(told(&said, "late"), ["40960"]);
    assert_eq!(told(&said, "read-only"), ["1"]);
    assert_eq!(told(&said, "read"), [(FILES + 2).to_string()], "the files, one more, and lost+found");
    assert_eq!(told(&said, "devices"), ["ublkb4"]);
    assert_eq!(told(&said, "quiet"), ["1"], "a user that keeps no one off");
    assert_eq!(told(&said, "queues"), ["2 warned 1"]);
    assert_eq!(told(&said, "several"), ["1"], "of a server that was killed at work");
    assert_eq!(told(&said, "left"), ["0", "0"]);
}

#[test]
fn a_kernel_without_the_driver_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("dimm");
    dax_image(&image, 64 << 20);
    let mut guest = guest(GuestKernel::Stable, &image);
    guest.script("mount_dax 0\n/tidegate create --pmem /mnt/v --size 32M >/dev/null");
    guest.script("refused no-driver /tidegate serve --pmem /mnt/v --ublk --listen unix:/run/s\numount /mnt");
    let said = run(guest);
    let message = refusal(&said, "no-driver");
    assert!(message.starts_with("5 ") && message.contains("modprobe ublk_drv (Linux 6.5 or newer)"), "{message}");
}

/// Requests of 4 KiB to the kernel's NBD client and to ublk, of one server: what they cost in
/// system calls of the server, and in switches away from any thread of the machine. The kernel
/// counts both. Its own housekeeping (`rcu_preempt`) and idle processors are left out. The server
/// never polls: how often that pays depends on the time.
const COSTS: &str = r#"
load ublk_drv nbd
/tidegate create --pmem /run/v.pmem --size 96M >/dev/null
begin serve serve --pmem /run/v.pmem --write-cache off --no-busy-poll --ublk --ublk-queues 1 --listen unix:/run/s.sock
nbd-client -unix /run/s.sock /dev/nbd0 -b 4096 >/dev/null 2>&1
mount -t tracefs tracefs /sys/kernel/tracing
calls=/sys/kernel/tracing/events/raw_syscalls/sys_enter
switches=/sys/kernel/tracing/events/sched/sched_switch
thread='hist:keys=prev_pid if prev_pid != 0 && prev_comm != "rcu_preempt"'
done_by() { awk '{ print $1 + $5 + $16 }' /sys/block/$1/stat; }
writes() { # DEVICE WRITES DEPTH
    fio --name=costs --filename=/dev/$1 --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --size=64M \
        --norandommap --number_ios=$2 --iodepth=$3
}
programs() { /guest-device /dev/$1 32 60; }
for form in 'writes 1000 1' 'writes 2000 32' programs; do
    for device in nbd0 ublkb0; do
        set -- $form
        echo 'hist:keys=common_pid' >$calls/trigger
        echo "$thread" >$switches/trigger
        requests=$(done_by $device)
        $1 $device $2 $3 >/run/costs 2>&1 || { cat /run/costs; exit 1; }
        requests=$(($(done_by $device) - requests))
        threads=$(ls /proc/$server/task | tr '\n' ' ')
        made=$(awk -v threads="$threads" '
            BEGIN { split(threads, list, " "); for (i in list) ours[list[i]] = 1 }
            /common_pid:/ && $3 in ours { for (i = 1; i < NF; i++) if ($i == "hitcount:") calls += $(i + 1) }
            END { print calls + 0 }' $calls/hist)
        switched=$(awk '$1 == "Hits:" { print $2 }' $switches/hist)
        echo '!hist:keys=common_pid' >$calls/trigger
        echo "!$thread" >$switches/trigger
        echo "cost $device $1-${3:-32} $requests $made $switched"
    done
done
nbd-client -d /dev/nbd0 >/dev/null
end
"#;

/// What requests cost: how many there were, system calls of the server and switches of the machine
/// for each.
struct Cost {
    requests: f64,
    calls: f64,
    switches: f64,
}

impl Cost {
    fn told(said: &Transcript, device: &str, form: &str) -> Cost {
        let line = told(said, &format!("cost {device} {form}"))[0];
        let [requests, calls, switches] = *line.split(' ').map(|number| number.parse().unwrap()).collect::<Vec<f64>>()
        else {
            panic!("{line}")
        };
        Cost { requests, calls: calls / requests, switches: switches / requests }
    }
}

/// System calls for each request that are few: how many requests come by one then depends on the
/// clock.
const FEW: f64 = 0.125;

/// Whether `one` is at most half of `other`, to a hundredth.
fn is_half(one: f64, other: f64) -> bool {
    (one / other * 100.0).round() <= 50.0
}

#[test]
fn requests_cost_half_of_what_they_cost_by_the_kernels_nbd_client() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("dimm");
    dax_image(&image, 64 << 20);
    let mut guest = guest(GuestKernel::Newer, &image);
    guest.tool("nbd-client", "nbd-client").unwrap_or_else(|error| panic!("{error}"));
    guest.linked(Path::new("/usr/bin/fio"), "bin/fio").unwrap_or_else(|error| panic!("{error}"));
    guest.script(COSTS);
    let said = run(guest);
    announce("| form | device | requests | system calls of the server each | switches of threads each |");
    announce("| --- | --- | --- | --- | --- |");
    let costs = ["writes-1", "writes-32", "programs-32"].map(|form| {
        let costs = ["nbd0", "ublkb0"].map(|device| (device, Cost::told(&said, device, form)));
        for (device, Cost { requests, calls, switches }) in &costs {
            announce(&format!("| {form} | {device} | {requests} | {calls:.3} | {switches:.3} |"));
        }
        let [(_, nbd), (_, ublk)] = costs;
        assert!(nbd.requests >= 1000.0 && ublk.requests >= 1000.0);
        (form, nbd, ublk)
    });
    for (form, nbd, ublk) in costs {
        assert!(is_half(ublk.calls, nbd.calls) || ublk.calls < FEW, "{form}: system calls");
        // Each of several programs waits for each of its requests, whoever serves it.
        let by_programs = if form == "programs-32" { 1.0 } else { 0.0 };
        assert!(is_half(ublk.switches - by_programs, nbd.switches - by_programs), "{form}: switches");
    }
}

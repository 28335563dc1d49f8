# Words for guest scripts. Every DIMM is named by its slot, the order in which the host gave them.
nd=/sys/bus/nd/devices

# The number of the region that DIMM $1 backs.
region() {
    for dimm in $nd/nmem*; do
        [ $(($(cat $dimm/nfit/handle))) = $(($1 + 1)) ] || continue
        for r in $nd/region*; do
            case "$(cat $r/mapping0)" in ${dimm##*/},*) echo ${r##*region} ;; esac
        done
    done
}

# The BTT block device on DIMM $1, or nothing and a failure when the driver made none.
device() {
    d=/dev/pmem$(region $1)s
    [ -b $d ] && echo $d
}

# Has the driver lay out a BTT of sector size $2 and uuid $3 on the raw DIMM $1.
format() {
    r=$(region $1)
    echo namespace$r.0 >/sys/bus/nd/drivers/nd_pmem/unbind
    echo $2 >$nd/btt$r.0/sector_size
    echo $3 >$nd/btt$r.0/uuid
    echo namespace$r.0 >$nd/btt$r.0/namespace
    echo btt$r.0 >/sys/bus/nd/drivers/nd_pmem/bind
}

# Prints size (in sectors of 512), sector size and the SHA-256 of all sectors of the BTT on DIMM $1.
report() {
    d=$(device $1) || { echo "report $1 absent"; return; }
    b=/sys/block/${d##*/}
    echo "report $1 $(cat $b/size) $(cat $b/queue/logical_block_size) $(sha256sum <$d | cut -d' ' -f1)"
}

# Like report, without reading the sectors.
measure() {
    d=$(device $1) || { echo "report $1 absent"; return; }
    b=/sys/block/${d##*/}
    echo "report $1 $(cat $b/size) $(cat $b/queue/logical_block_size) unread"
}

# Loads modules by their names, in this order, but for those that are a part of the kernel.
load() {
    for module in $*; do
        if [ -e /modules/$module.ko ]; then insmod /modules/$module.ko; fi
    done
}

# Gives the raw DIMM $1 page structures, as a block device for DAX ($2 is pfn, $3 its driver nd_pmem) or a character device
# (dax, dax_pmem). Its data then begin 2 MiB further on. The driver remembers it, by the uuid $4.
dax_namespace() {
    name=$2$(region $1).0
    echo namespace${name#$2} >/sys/bus/nd/drivers/nd_pmem/unbind
    echo ram >$nd/$name/mode
    echo 4096 >$nd/$name/align
    echo $4 >$nd/$name/uuid
    echo namespace${name#$2} >$nd/$name/namespace
    echo $name >/sys/bus/nd/drivers/$3/bind
}

# The character device of DIMM $1, which was raw unless it was one before.
dax_device() {
    load device_dax dax_pmem
    cat $nd/ndbus0/wait_probe >/dev/null
    d=/dev/dax$(region $1).0
    [ -c $d ] || dax_namespace $1 dax dax_pmem 5d0e5a52-6a1b-4f3e-9c64-0f3f0a7c1d11
    [ -c $d ] && echo $d
}

# Mounts the ext4 on DIMM $1, 2 MiB from its start, at /mnt: its files are mapped without a page cache.
mount_dax() {
    load crc16 crc32c_generic mbcache jbd2 ext4
    mode=$(cat $nd/namespace$(region $1).0/mode)
    [ $mode = raw ] && dax_namespace $1 pfn nd_pmem 0f3f0a7c-1d11-4f3e-9c64-5d0e5a526a1b
    mkdir -p /mnt
    mount -t ext4 -o dax=always /dev/pmem$(region $1) /mnt || { dmesg | tail -n 3; false; }
}

# Makes the guest's disks appear.
disks() {
    load virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk
}

# The block device of DIMM $1, given page structures, empty at its beginning, and with its writes counted.
counted_dimm() {
    r=$(region $1)
    dax_namespace $1 pfn nd_pmem 0f3f0a7c-1d11-4f3e-9c64-5d0e5a526a${r}b
    dd if=/dev/zero of=/dev/pmem$r bs=64k count=1 conv=fsync 2>/dev/null
    echo 1 >/sys/block/pmem$r/queue/iostats
    echo /dev/pmem$r
}

# Prints what the block devices $2 ... were written so far, under the name $1: requests, sectors of 512 and flushes of each.
tally() {
    line="tally $1"
    shift
    sectors mark
    for d in $*; do
        line="$line $(awk '{ print $5, $7, $16 }' /sys/block/${d##*/}/stat)"
    done
    echo "$line"
}

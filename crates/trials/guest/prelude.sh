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

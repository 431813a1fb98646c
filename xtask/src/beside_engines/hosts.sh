# The begin of the script of `cargo xtask beside-engines` between hosts, after the functions of hosts.

# Times to wait for a peer are the engines' own.
unset HYDRANT_PEER_TIMEOUT HYDRANT_JOIN_TIMEOUT
export HYDRANT_OFI_INTERFACE=eth0 UCX_NET_DEVICES=eth0

# A command that takes a host, and `down` or `up`. Its caller is on a host, and the bridge is not.
cat >$work/link <<END
#!/bin/sh
exec nsenter --net=/proc/$$/ns/net ip link set v\$1 \$2
END
chmod +x $work/link

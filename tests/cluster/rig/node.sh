# Runs as the first process of a node's mount and pid namespace: gives the node its own folders, then reaps for ever.
#
# $1: the node's folder. Writable layers over /etc, /var, /run and /dev keep every new entry inside the namespace, so
# that nothing of it is left on the machine; the folders that are looked at from outside are bound over them.
set -euo pipefail
node=$1
mount -t tmpfs -o mode=755 tmpfs "$node/layers"
for folder in etc var run dev; do
    mkdir -p "$node/layers/$folder/upper" "$node/layers/$folder/work"
done
# What is mounted below /dev is not part of the layer.
mounted=$(findmnt --noheadings --list --output TARGET | grep -E '^/dev/(pts|shm|mqueue|hugepages)$' || true)
for below in $mounted; do
    mkdir -p "$node/layers/kept$below"
    mount --bind "$below" "$node/layers/kept$below"
done
for folder in etc var run dev; do
    mount -t overlay -o "lowerdir=/$folder,upperdir=$node/layers/$folder/upper,workdir=$node/layers/$folder/work" overlay "/$folder"
done
for below in $mounted; do
    mkdir -p "$below"
    mount --move "$node/layers/kept$below" "$below"
done
bind() {
    mkdir -p "$node/$1" "$2"
    mount --bind "$node/$1" "$2"
}
bind kubelet /var/lib/kubelet
mount --make-shared /var/lib/kubelet
bind containerd /var/lib/containerd
bind run-containerd /run/containerd
bind cdi /run/cdi
bind etc-cdi /etc/cdi
bind nri /run/nri
bind netns /run/netns
bind cni-state /var/lib/cni
bind pods /var/log/pods
bind containers /var/log/containers
bind run-ostler /run/ostler
bind lib-ostler /var/lib/ostler
bind etc-ostler /etc/ostler
cp "$node/machine-id" /etc/machine-id
# Every start of a node is a boot of its own.
cat /proc/sys/kernel/random/uuid > "$node/boot-id"
mount --bind "$node/boot-id" /proc/sys/kernel/random/boot_id
touch "$node/made"
while :; do
    sleep 3600 &
    wait
done

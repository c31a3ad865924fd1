#!/usr/bin/env bash
# node.sh CLUSTER NAME: pid 1 of a node, in namespaces of its own (cluster.sh). Its folder was made by layout.py.
# Mounts the root, turns into it, sets up the network, starts containerd and the kubelet, joins by kubeadm if it has not yet,
# stays, and starts again each of its daemons that ends.
set -euo pipefail
cluster=$1 node=$2
number=${node#n}
root=$cluster/nodes/$node/root

share=$cluster/share
# a node never ends by itself: `up` finds the mark and gives up at once
trap 'echo "$node: line $LINENO of node.sh failed" >&2; touch "$share/$node.failed"' EXIT

mount_root() {
  mount --bind "$root" "$root"
  cd "$root"
  mount --bind -o ro "$CLUSTER_ROOTFS/usr" usr
  mount --bind -o ro "$CLUSTER_BIN" opt/kube
  mount --bind "$cluster/share" share
  mount --rbind /dev dev
  mount -t tmpfs shm dev/shm
  mount -t tmpfs -o mode=755 run run
  mount -t sysfs sysfs sys
  mount -t proc proc proc
  local file
  while read -r file; do
    [[ ! -e proc/sys/$file ]] || mount --bind "$cluster/nodes/$node/sysctl/$file" "proc/sys/$file"
  done < <(cd "$cluster/nodes/$node/sysctl" && find . -type f)
  mount_cgroups
}

mount_cgroups() {
  if [[ $CLUSTER_CGROUP_VERSION == 2 ]]; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    return
  fi
  mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
  local at options single
  for at in $CLUSTER_CGROUPS; do
    options=$(basename "$at")
    mkdir "sys/fs/cgroup/$options"
    case $options in
      systemd) mount -t cgroup -o none,name=systemd cgroup "sys/fs/cgroup/$options" ;;
      *) mount -t cgroup -o "$options" cgroup "sys/fs/cgroup/$options" ;;
    esac
    # controllers that share a hierarchy are also looked up by their single names
    if [[ $options == *,* ]]; then
      for single in ${options//,/ }; do ln -s "$options" "sys/fs/cgroup/$single"; done
    fi
  done
}

hand_down_controllers() { # cgroup 2: what the kubelet's kubepods may use
  [[ $CLUSTER_CGROUP_VERSION == 2 ]] || return 0
  local name
  for name in $(< /sys/fs/cgroup/cgroup.controllers); do
    echo "+$name" > /sys/fs/cgroup/cgroup.subtree_control
  done
}

network() {
  local other
  until [[ -e /sys/class/net/eth0 ]]; do sleep 0.05; done
  ip link set lo up
  ip addr add "$CLUSTER_NET.$((10 + number))/24" dev eth0
  ip link set eth0 up
  # a process of the node needs some route to a Service before kube-proxy rewrites it; there is no default route
  ip route add "$CLUSTER_SERVICES.0.0/16" dev eth0
  for other in $(seq "$CLUSTER_NODES"); do
    [[ $other == "$number" ]] || ip route add "$CLUSTER_PODS.$((other - 1)).0/24" via "$CLUSTER_NET.$((10 + other))"
  done
  echo 1 > /proc/sys/net/ipv4/ip_forward
  echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
  nft -f - << RULES
table ip trainlab {
  chain leaving {
    type nat hook postrouting priority srcnat;
    ip saddr $CLUSTER_PODS.0.0/16 ip daddr != { $CLUSTER_PODS.0.0/16, $CLUSTER_NET.0/24 } oifname eth0 masquerade;
  }
}
RULES
}

declare -A pids

start() { # start NAME: a daemon of the node, whose log goes on
  "$1_daemon" >> "/var/log/$1.log" 2>&1 &
  pids[$1]=$!
}

supervise() { # for ever; pid 1 reaps meanwhile
  local name
  while true; do
    sleep 1 || true
    for name in "${!pids[@]}"; do
      kill -0 "${pids[$name]}" 2> /dev/null && continue
      echo "$node: $name ended and is started again" >&2
      start "$name"
    done
  done
}

containerd_answers() {
  until ctr version > /dev/null 2>&1; do sleep 0.1; done
}

containerd_daemon() {
  exec containerd --config /etc/containerd.toml
}

kube-proxy_daemon() {
  exec kube-proxy --config /root/kube-proxy.yaml
}

kubelet_daemon() { # kubeadm finds no systemd, says so, writes the files and waits for a healthy kubelet
  local kubelet=/var/lib/kubelet kubernetes=/etc/kubernetes
  until [[ -s $kubelet/config.yaml && -s $kubelet/kubeadm-flags.env ]] \
    && [[ -s $kubernetes/kubelet.conf || -s $kubernetes/bootstrap-kubelet.conf ]]; do sleep 0.1; done
  containerd_answers # a kubelet ends without it
  local arguments
  arguments=$(sed -n 's/^KUBELET_KUBEADM_ARGS="\(.*\)"$/\1/p' "$kubelet/kubeadm-flags.env")
  # the flags are separated by blanks and hold none
  # shellcheck disable=SC2086
  exec kubelet --config "$kubelet/config.yaml" --config-dir "$kubernetes/kubelet.conf.d" \
    --kubeconfig "$kubernetes/kubelet.conf" --bootstrap-kubeconfig "$kubernetes/bootstrap-kubelet.conf" $arguments
}

control_plane() {
  local admin=/etc/kubernetes/super-admin.conf
  kubeadm init --config /root/kubeadm.yaml --skip-phases=preflight,addon/kube-proxy,show-join-command
  kubeadm kubeconfig user --config /root/kubeadm.yaml --client-name system:kube-proxy > /share/kube-proxy.conf
  # the form without a named context: with one, join fails without a word
  kubectl --kubeconfig "$admin" --namespace kube-public get configmap cluster-info \
    -o 'jsonpath={.data.kubeconfig}' > /share/cluster-info.conf
  cp "$admin" /share/admin.part
  mv /share/admin.part /share/admin.conf
}

worker() { # one after the other: the order of registration is the order of the pod subnets
  until [[ -e /share/n$((number - 1)).joined ]]; do sleep 0.2; done
  kubeadm join --config /root/kubeadm.yaml --skip-phases=preflight
}

hostname "$node"
mount_root
pivot_root . old
cd /
share=/share
umount -l /old
mount --make-rshared /
export PATH=/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
hand_down_controllers
network
start containerd
containerd_answers
start kubelet
if [[ ! -e /share/$node.joined ]]; then # else it was stopped, or its machine was
  if [[ $number != 1 ]]; then worker; elif [[ ! -e /share/admin.conf ]]; then control_plane; fi
  until kubectl --kubeconfig /etc/kubernetes/kubelet.conf get node "$node" > /dev/null 2>&1; do sleep 0.2; done
  touch "/share/$node.joined"
fi
start kube-proxy
supervise

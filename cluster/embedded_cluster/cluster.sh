#!/usr/bin/env bash
# cluster.sh START CLUSTER NODES. Started by cluster.py, which gives it CLUSTER_GROUP, the cluster's cgroup.
# `launch`: becomes pid 1 of the outer namespaces. `outer`: is it; its network namespace is the switch between the
# nodes, and when it dies the kernel ends every node, link and mount with it. `node`: becomes a node's pid 1.
set -euo pipefail
start=$1 cluster=$2 what=$3
package=${BASH_SOURCE%/*}

join() { # join GROUP: move this process into CLUSTER_GROUP/GROUP of every hierarchy
  local at
  for at in $CLUSTER_CGROUPS; do
    echo 0 > "$at/$CLUSTER_GROUP/$1/cgroup.procs"
  done
}

case $start in
  launch)
    join outer
    exec setsid unshare --fork --pid --mount --net --uts --ipc --propagation private \
      bash "$package/cluster.sh" outer "$cluster" "$what"
    ;;
  outer)
    mount -t proc proc /proc
    hostname "$CLUSTER_GROUP"
    ip link set lo up
    ip link add br0 type bridge
    ip link set br0 up
    : > "$cluster/run/switch"
    own=$(readlink /proc/self/ns/net)
    for number in $(seq "$what"); do
      bash "$package/cluster.sh" node "$cluster" "n$number" < /dev/null > "$cluster/log/n$number.log" 2>&1 &
      pid=$!
      # the process stays the same through all its execs: wait until it has left this network namespace
      until theirs=$(readlink "/proc/$pid/ns/net") && [[ $theirs != "$own" ]]; do
        [[ -d /proc/$pid ]] || exit 1
        sleep 0.02
      done
      ip link add "vn$number" type veth peer name eth0 netns "$pid"
      ip link set "vn$number" master br0 up
    done
    while true; do wait -n || sleep 1; done # pid 1 reaps
    ;;
  node)
    join "$what"
    # the cgroup namespace takes the group that this process is in as its root: join first, unshare second
    exec unshare --cgroup bash "$package/cluster.sh" node-init "$cluster" "$what"
    ;;
  node-init)
    # cgroup 2: a group that hands out controllers holds no process, see cgroups.py
    [[ $CLUSTER_CGROUP_VERSION == 1 ]] || join "$what/init"
    exec unshare --fork --kill-child --pid --mount --net --uts --ipc --propagation private \
      bash "$package/node.sh" "$cluster" "$what"
    ;;
esac

#!/usr/bin/env bash
# rootfs.sh ROOT CWD MOUNT... -- COMMAND...
# Pid 1 of a throw-away mount and PID namespace: runs COMMAND with the Debian folder ROOT as its root. Every
# MOUNT is visible at its own path. The kernel undoes all of it when COMMAND ends. Started by rootfs.py only.
set -euo pipefail
root=$1 cwd=$2
shift 2

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
# names and certificates are looked up as the host looks them up: package registries may sit behind its proxy
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
  [[ -e $file ]] || continue
  if [[ ! -f $root$file ]]; then mkdir -p "$root${file%/*}" && : > "$root$file"; fi
  mount --bind "$file" "$root$file"
done
while [[ $1 != -- ]]; do
  if [[ -d $1 ]]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}" && touch "$root$1"; fi
  mount --rbind "$1" "$root$1"
  shift
done
shift
# not exec: bash stays pid 1 and reaps, the command gets signals like any process
env --chdir="$root" chroot "$root" env --chdir="$cwd" "$@"

#!/usr/bin/env bash
# boot.sh COMMAND...: pid 1 of a fresh machine's namespaces, started by fresh_machine.py only. COMMAND runs with the
# overlay of $LOWER and $DISK/upper as its whole file system; the kernel undoes every mount when it ends.
# $MOUNTS: lines of "kind source target", for uid $OWNER. $SETUP: a script, run as root in the machine before. $LEFT: a file
# descriptor; processes that outlive COMMAND are written to it.
set -euo pipefail
trap ':' INT TERM HUP # a signal is meant for COMMAND, whose leftovers are examined afterwards

mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$DISK/upper,workdir=$DISK/work" "$DISK/root"
cd "$DISK/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm
if [[ $NETWORK == yes ]]; then
  mount --rbind /sys sys
else
  ip link set lo up
  mount -t sysfs sysfs sys # of this network namespace: the other one's links are in the other one's /sys
  mount --rbind /sys/fs/cgroup sys/fs/cgroup
fi
mount -t tmpfs tmpfs run
mount -t tmpfs -o "size=$TMP" tmpfs tmp
while read -r kind source target; do
  [[ -n $kind ]] || continue
  if [[ $kind == file ]]; then
    # shellcheck disable=SC2016 # expanded by the inner shell
    chroot --userspec="$OWNER:$OWNER" . sh -c 'mkdir -p "${0%/*}" && cat > "$0"' "$target" < "$source"
    continue
  fi
  if [[ -d $source ]]; then mkdir -p ".$target"; else mkdir -p ".${target%/*}" && touch ".$target"; fi
  case $kind in
    disk) mount --bind "$source" ".$target" ;;
    seen) mount --bind "$source" ".$target" && mount -o remount,bind,ro ".$target" ;;
    copy) # copy on write: the machine may change it, and this one's own stays as it is
      layer=$DISK/copies/${target//\//+}
      mkdir -p "$layer/upper" "$layer/work"
      mount -t overlay overlay -o "lowerdir=$source,upperdir=$layer/upper,workdir=$layer/work" ".$target"
      ;;
  esac
  if [[ $OWNER != 0 && $kind != seen ]]; then # folders, and the files that say where a Python environment's sources are
    find ".$target" \( -type d -o -name '*.pth' \) -exec chown "$OWNER:$OWNER" {} +
  fi
done <<< "$MOUNTS"
hostname fresh
pivot_root . .
umount -l .

close() { "$@" {LEFT}>&-; }
if [[ -n $SETUP ]]; then
  close env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    bash -euc "$SETUP" < /dev/null
fi
declare -A mine=([1]=1)
for folder in /proc/[0-9]*; do mine[${folder#/proc/}]=1; done

code=0
close "$@" < /dev/null || code=$?

# no background process from here on: it would be counted
for _ in {1..50}; do
  others=()
  for folder in /proc/[0-9]*; do
    if [[ -z ${mine[${folder#/proc/}]:-} ]] && mapfile -d '' -t argv < "$folder/cmdline" && [[ ${#argv[@]} -gt 0 ]]; then
      others+=("${argv[*]}")
    fi 2> /dev/null
  done
  [[ ${#others[@]} -gt 0 ]] || break
  sleep 0.1
done
if [[ ${#others[@]} -gt 0 ]]; then printf '%s\n' "${others[@]}" >&"$LEFT"; fi
exit "$code"

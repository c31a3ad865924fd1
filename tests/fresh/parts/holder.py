#!/usr/bin/env python3
"""Holds the lock of apt's front ends for N seconds, as apt does: an fcntl(2) lock."""

import fcntl
import pathlib
import sys
import time

with pathlib.Path("/var/lib/dpkg/lock-frontend").open("w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    pathlib.Path("/run/held").touch()
    time.sleep(float(sys.argv[1]))

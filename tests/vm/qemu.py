"""A virtual machine without KVM: every instruction is translated, so it is ten to twenty times slower than the host."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedded_cluster.base import programs

from vm import guest

PROGRAM = "qemu-system-x86_64"
MEMORY_MIB = 10240
CORES = 2
POLL_SECONDS = 2.0
BEAT_SECONDS = 60.0


@dataclass(frozen=True)
class Machine:
    """What one is made of, and the files of its two serial ports: the job's output and the console."""

    kernel: Path
    initrd: Path
    root: Path
    parts: Path
    log: Path
    console: Path

    def command(self) -> list[str]:
        """The argument list; its writes to the parts' disk go to a layer that vanishes with the process."""
        disk = "if=virtio,format=raw,cache=unsafe"
        return [
            *(PROGRAM, "-accel", "tcg,thread=multi", "-cpu", "max", "-m", str(MEMORY_MIB), "-smp", str(CORES)),
            *("-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"),
            *("-serial", f"file:{self.console}", "-serial", f"file:{self.log}"),
            *("-kernel", str(self.kernel), "-initrd", str(self.initrd)),
            *("-append", "root=/dev/vda rw console=ttyS0 systemd.show_status=true"),
            *("-drive", f"file={self.root},{disk}", "-drive", f"file={self.parts},{disk},snapshot=on"),
        ]

    def run(self, scratch: Path, quiet_seconds: float) -> Iterator[dict[str, Any]]:
        """Run it to its power-off and yield each stage as it ends, a heartbeat each minute: {"beat": last line}.

        Raises TimeoutError when it prints nothing for `quiet_seconds`; the process ends with this generator and this program.
        """
        self.log.write_bytes(b"")
        running = subprocess.Popen(
            [*programs.with_us(), "nice", "-n", "5", *self.command()],
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield from self._follow(running, quiet_seconds)
        finally:
            running.kill()
            running.wait()

    def _follow(self, running: subprocess.Popen[str], quiet_seconds: float) -> Iterator[dict[str, Any]]:
        last, rest, heard, beat = "", "", time.monotonic(), time.monotonic()
        with self.log.open(encoding="utf-8", errors="replace") as log:
            while True:
                ended = running.poll() is not None
                fresh = log.read()
                heard = time.monotonic() if fresh else heard
                *lines, rest = (rest + fresh).replace("\r", "").split("\n")
                for line in lines:
                    if line.startswith(guest.MARK):
                        yield json.loads(line.removeprefix(guest.MARK))
                    elif line.strip():
                        last = line.strip()
                if ended:
                    if running.returncode:
                        raise RuntimeError(
                            f"{PROGRAM} ended with {running.returncode}: {(running.stderr or []) and running.stderr.read()[-500:]}"
                        )
                    return
                if time.monotonic() - heard > quiet_seconds:
                    raise TimeoutError(
                        f"silent for {quiet_seconds:.0f} s after: {last}; see {self.log} and {self.console}"
                    )
                if time.monotonic() - beat > BEAT_SECONDS:
                    beat = time.monotonic()
                    yield {"beat": last}
                time.sleep(POLL_SECONDS)

"""Makes `platform` say that this is a Mac; the rest of Python stays that of Linux, so that what it runs can run."""

import platform

platform.system = lambda: "Darwin"
platform.mac_ver = lambda: ("15.5", ("", "", ""), "arm64")

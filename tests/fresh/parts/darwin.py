"""Makes `platform` report a Mac; the rest of Python stays Linux's, so that what it runs can run."""

import platform

platform.system = lambda: "Darwin"
platform.mac_ver = lambda: ("15.5", ("", "", ""), "arm64")

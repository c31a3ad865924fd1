"""Can Triton compile here? Asked before the first step of what needs it on a GPU; called by run/worker.py.

Triton (3.7, runtime/build.py) compiles a C file against Python.h for each of its GPU kernels, while the run goes on: those of
TRL's loss and fused head (trl.kernels.chunked_logprob), with which every language model here is trained or scored, of compiled
layers, and so of FP8. Run on one H100, where it found a compiler; what it says without one is tested on CPU.
"""

import os
import subprocess
import sysconfig
from pathlib import Path

from trainlab.config import LanguagePhase, Phase
from trainlab.errors import UserError

MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "trainlab_probe", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_trainlab_probe(void) { return PyModule_Create(&module); }
"""


def check(phase: Phase) -> None:
    """Raise UserError where a phase needs Triton's compiler and it does not work; some 0.2 s, once per cache."""
    if (key := asked_by(phase)) and (lack := lacking()):
        raise UserError(
            f"{key}: on a GPU, Triton compiles while the run goes on, which cannot work here: {lack}; build the image "
            "(site.images.trainer) by images/trainer/Containerfile, which adds gcc, libc6-dev and libpython3-dev, or take a base "
            "image that has them"
        )


def asked_by(phase: Phase) -> str | None:
    """Return the key and value that make a phase need Triton on a GPU, None if nothing does."""
    if phase.stage_block and phase.stage_block.compile:
        return "phase.stage.compile is true"
    return f"phase.recipe is {phase.recipe}" if isinstance(phase, LanguagePhase) else None


def lacking() -> str | None:
    """Return why Triton cannot compile here, None if it can: compiles a module as Triton does."""
    from triton.runtime.build import compile_module_from_src

    headers = Path(sysconfig.get_path("include"))
    try:
        compile_module_from_src(MODULE, "trainlab_probe")
    except FileNotFoundError as error:
        return (
            f"CC is {os.environ.get('CC')}: no such program" if error.filename == os.environ.get("CC") else str(error)
        )
    except subprocess.CalledProcessError as error:
        if not (headers / "Python.h").is_file():
            return f"Python's headers are missing ({headers}/Python.h)"
        return f"{Path(error.cmd[0]).name} exits with {error.returncode}, see its message above"
    except (
        RuntimeError,
        OSError,
        ImportError,
    ) as error:  # no compiler; a cache that cannot be written; a broken module
        return str(error).splitlines()[0]
    return None

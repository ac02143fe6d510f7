"""Compiles the kernel (data_plane/wire/kernel_*.py) when the server is installed, editable or not.

The sources are plain Python that runs as it is; Cython and the .pxd files beside them turn the
same text into C. A machine without Cython or a C compiler gets one line of notice and the
interpreted kernel, and works.

- The modules land in data_plane/wire/kernel_compiled/ (ignored by git), where the editable install
  finds them too, and go into the wheel.
- Each carries the digest of the sources it was made from. `kernel.py` refuses one whose digest is
  not that of the sources lying there, so a stale module is never run; here, one whose digest is
  right is not built again.
- TIDEWHEEL_KERNEL=require makes a failure an error, TIDEWHEEL_KERNEL=skip builds nothing.

`python hatch_build.py` does the same by hand.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent
WIRE = ROOT / "data_plane" / "wire"
TARGET = WIRE / "kernel_compiled"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
COMPILER_FLAGS = [] if sys.platform == "win32" else ["-O2", "-fwrapv", "-g0", "-w"]
DIRECTIVES = {"language_level": 3, "annotation_typing": False, "cdivision": True}


def compile_kernel() -> str:
    """Compile what is not up to date. Returns what went wrong in one line, "" for nothing."""
    if os.environ.get("TIDEWHEEL_KERNEL") == "skip":
        return "TIDEWHEEL_KERNEL=skip"
    facts = runpy.run_path(str(WIRE / "kernel_sources.py"))
    digest: str = facts["sources_digest"](WIRE)
    names: tuple[str, ...] = facts["COMPILED_NAMES"]
    if all(_is_current(TARGET / f"{name}{SUFFIX}", digest) for name in names):
        return ""
    try:
        with tempfile.TemporaryDirectory(prefix="tidewheel-kernel-") as folder:
            _compile(Path(folder), names, digest)
    except Exception as error:  # Whatever a missing or odd toolchain raises: pure Python works.
        if os.environ.get("TIDEWHEEL_KERNEL") == "require":
            raise
        return f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return ""


def _is_current(path: Path, digest: str) -> bool:
    return path.is_file() and digest.encode() in path.read_bytes()


def _compile(folder: Path, names: tuple[str, ...], digest: str) -> None:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension  # type: ignore[import-untyped]

    package = folder / "data_plane" / "wire" / "kernel_compiled"
    package.mkdir(parents=True)
    for inner in (package, package.parent, package.parent.parent):
        (inner / "__init__.py").touch()
    for declarations in WIRE.glob("kernel_*.pxd"):
        shutil.copy(declarations, package.parent)
    extensions = []
    for name in names:
        source = package / f"{name}.py"
        text = (WIRE / f"{name}.py").read_text(encoding="utf-8")
        source.write_text(f'{text}\n\nSOURCES_DIGEST = "{digest}"\n', encoding="utf-8")
        shutil.copy(WIRE / f"{name}.pxd", package)
        extensions.append(
            Extension(
                f"data_plane.wire.kernel_compiled.{name}",
                [str(source)],
                extra_compile_args=COMPILER_FLAGS,
                # The digest must be found in the file by looking at its bytes.
                define_macros=[("CYTHON_COMPRESS_STRINGS", "0")],
            )
        )
    here = Path.cwd()
    os.chdir(folder)
    try:
        modules = cythonize(  # type: ignore[no-untyped-call]
            extensions, compiler_directives=DIRECTIVES, include_path=[str(folder)], quiet=True
        )
        distribution = Distribution({"name": "tidewheel-kernel", "ext_modules": modules})
        command = distribution.get_command_obj("build_ext")
        command.build_lib = str(folder / "lib")
        command.build_temp = str(folder / "temp")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(here)
    for name in names:
        built = folder / "lib" / "data_plane" / "wire" / "kernel_compiled" / f"{name}{SUFFIX}"
        # Renamed into place, so that a running broker keeps the file it has loaded.
        fresh = TARGET / f".{name}{SUFFIX}.{os.getpid()}"
        shutil.copy(built, fresh)
        os.replace(fresh, TARGET / f"{name}{SUFFIX}")


if TYPE_CHECKING:
    from hatchling.builders.config import BuilderConfig
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    Hook = BuildHookInterface[BuilderConfig]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as Hook
    except ModuleNotFoundError:  # Run by hand, where hatchling need not be.
        Hook = object


class KernelBuildHook(Hook):
    """What hatchling calls before it packs a wheel, editable or not."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        problem = compile_kernel()
        if problem:
            self.app.display_warning(f"{NOTICE} ({problem})")
        elif version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"].append(f"data_plane/wire/kernel_compiled/*{SUFFIX}")


NOTICE = "tidewheel: the kernel stays interpreted Python, which works but is slower"

if __name__ == "__main__":
    trouble = compile_kernel()
    sys.stdout.write(
        f"{NOTICE} ({trouble})\n" if trouble else "tidewheel: the kernel is compiled\n"
    )

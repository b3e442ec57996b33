"""Where the programs of a bundle (tests/gpu/bundle) find their libraries on a machine with a GPU."""

import os
import pathlib


def library_path(binaries):
    """For LD_LIBRARY_PATH: lib beside the programs' folder, CUDA's as a Python environment with torch has them, the
    toolkit's, then what is set."""
    folders = [str(pathlib.Path(binaries).resolve().parent / "lib")]
    try:
        import nvidia
        for root in nvidia.__path__:
            folders += sorted(str(path) for path in pathlib.Path(root).glob("*/lib"))
    except ImportError:
        pass
    folders += ["/usr/local/cuda/lib64", os.environ.get("LD_LIBRARY_PATH", "")]
    return ":".join(folder for folder in folders if folder)

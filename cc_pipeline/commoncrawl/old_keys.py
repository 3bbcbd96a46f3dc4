"""Names of archive files as indexes and lists of all years write them, as keys of today's bucket.

Public data lay in the bucket ``aws-publicdatasets`` below ``common-crawl/`` before it moved to ``commoncrawl``. Lists
and index rows of that time have the folder in front of a key; nothing in today's bucket lies below it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PLACES = re.compile(
    r"(?:s3[an]?://(?:commoncrawl|aws-publicdatasets)/"
    r"|https?://(?:data\.commoncrawl\.org|commoncrawl\.s3[.a-z0-9-]*\.amazonaws\.com"
    r"|aws-publicdatasets\.s3[.a-z0-9-]*\.amazonaws\.com)/"
    r"|https?://s3[.a-z0-9-]*\.amazonaws\.com/(?:commoncrawl|aws-publicdatasets)/)"
)
#: What every name of before begins with.
OLD_FOLDER: Final = "common-crawl/"
# only in front of the public layouts: whoever has other files in a folder of this name means these
_OLD = r"^common-crawl/((?:crawl-data|crawl-00[12]|parse-output|cc-index|projects)/)"
_OLD_NAME = re.compile(_OLD)


def todays_key(name: str) -> str:
    """The key in today's bucket for a name or an address of any year; other names as they are.

    ``common-crawl/crawl-data/…``, ``s3://aws-publicdatasets/common-crawl/parse-output/…`` and
    ``https://data.commoncrawl.org/crawl-data/…`` are such names. Whether the key is a sound one is another question.
    """
    match = _PLACES.match(name)
    return _OLD_NAME.sub(r"\1", name[match.end() :].lstrip("/") if match else name)


def todays_keys(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The same of a column of names without the address of a bucket."""
    # most readers of one name have no column
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.replace_substring_regex(names, _OLD, r"\1")

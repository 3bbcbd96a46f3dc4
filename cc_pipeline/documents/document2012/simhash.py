"""The ``text_simhash`` of the 2012 document, bit for bit.

Taken over the UTF-16 code units of a text: the set of all runs of four units, each run's eight big-endian bytes
fingerprinted (see simhash_np.py), one vote per fingerprint and bit, a result bit set where ones are the majority.
"""

from __future__ import annotations

from collections.abc import Callable

from cc_pipeline import compiled

_text_simhash_c: Callable[[str], int] | None = compiled("documents.document2012._simhash", "text_simhash")

#: Whether the compiled function is in use.
COMPILED = _text_simhash_c is not None


def text_simhash(text: str) -> int:
    """Returns the signed 64-bit simhash of a text; 0 for texts of fewer than four UTF-16 units."""
    if _text_simhash_c is not None:
        return _text_simhash_c(text)
    from cc_pipeline.documents.document2012.simhash_np import text_simhash as over_arrays  # noqa: PLC0415 - numpy only where needed

    return over_arrays(text)

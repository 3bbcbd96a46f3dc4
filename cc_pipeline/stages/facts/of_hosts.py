"""The question about hosts to one dataset, in the form in which it has hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.host_keys import HostForm, HostRanges, WwwRule, host_key
from cc_pipeline.index.keyed.lookup import Endings
from cc_pipeline.stages.facts.datasets import Dataset
from cc_pipeline.stages.facts.folding import folded

#: The column by which hosts are joined.
HOST: Final = "surt_host_name"
#: Domains up to which comparing all keys with each is cheaper than looking at keys one by one.
_FEW: Final = 64


class OfHosts:
    """What ``dataset`` says of ``hosts``: see ``asking.Question``."""

    def __init__(self, dataset: Dataset, hosts: HostRanges) -> None:
        self._fold = dataset.fold
        self._hosts = hosts
        self._form = cast(HostForm, dataset.form)
        self.ranges: Sequence[KeyRange] = hosts.of(self._form, cast(WwwRule, dataset.www))
        self.keep: Callable[[pa.Array], npt.NDArray[np.bool_]] | None = (
            None if self._form == "surt_host" else self._meant
        )
        self.columns: Mapping[str, pa.DataType] = {}
        endings = hosts.endings() if dataset.ending else None
        self.endings = None if endings is None else Endings(dataset.ending, endings)
        self.named: object = ["hosts", [[each.start.hex(), (each.end or b"").hex()] for each in hosts.surt]]

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows under their SURT keys, one a host."""
        texts = table.column(0)
        if self._form == "surt_host":
            keyed, www = texts, None
        else:
            found = [host_key(text, self._form) for text in texts.to_pylist()]
            keyed = pa.array([one.surt if one else None for one in found], pa.string())
            www = pa.array([one.www if one else None for one in found], pa.bool_())
        # the answer's own key is the one column of that name
        others = [(name, values) for name, values in zip(table.column_names[1:], table.columns[1:], strict=True)]
        columns = {HOST: keyed} | {name: values for name, values in others if name != HOST}
        return folded(pa.table(columns), 1, www, self._fold)

    def _meant(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(keys), dtype=bool)
        for place in np.flatnonzero(self._near(keys)):
            found = host_key(keys[place].as_py().decode("utf-8", "replace"), self._form)
            mask[place] = found is not None and self._hosts.holds(found.surt)
        return mask

    def _near(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Which keys may be meant: a quick look, so that of a column of plain hosts few are looked at closely."""
        names = self._hosts.names()
        if self._form != "host" or names is None or len(names) > _FEW:
            return np.ones(len(keys), dtype=bool)
        mask = np.zeros(len(keys), dtype=bool)
        for name in names:
            mask |= _true(pc.ends_with(keys, name.encode())) | _true(pc.match_substring(keys, f"{name}:".encode()))
        return mask


def _true(mask: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found

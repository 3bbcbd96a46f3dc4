"""As much of a Spark application as the engine uses, in this process: tasks run one after the other, are pickled as
Spark's are, and may be lost or run twice."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self, more: int) -> None:
        self.value += more


class InProcess:
    """Stands in for a ``SparkContext``. ``around`` is given a task (a function of no arguments) and its number and
    says what becomes of it."""

    defaultParallelism = 2

    def __init__(
        self,
        around: Callable[[Callable[[], Any], int], Any] | None = None,
        conf: Mapping[str, str] | None = None,
        tries: int = 1,
    ) -> None:
        self.conf = {"spark.executor.instances": "2", **(conf or {})}
        self.master = f"local[2,{tries}]"
        self.around = around or (lambda task, number: task())
        self.executors = 2
        self.tasks: list[Any] = []
        self.cancelled: list[str] = []

    @property
    def _jsc(self) -> InProcess:
        return self

    def sc(self) -> InProcess:
        return self

    def isStopped(self) -> bool:
        return False

    def getExecutorMemoryStatus(self) -> InProcess:
        return self

    def size(self) -> int:
        return self.executors + 1

    def getConf(self) -> InProcess:
        return self

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.conf.get(name, default)

    def accumulator(self, value: int) -> Counter:
        assert value == 0
        return Counter()

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool = False) -> None:
        del group, description, interruptOnCancel

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def parallelize(self, values: Iterable[int], slices: int) -> _Values:
        numbers = list(values)
        assert len(numbers) == slices
        return _Values(self, numbers)


class _Values:
    def __init__(self, context: InProcess, values: Sequence[int]) -> None:
        self._context = context
        self._values = values

    def mapPartitions(self, function: Callable[[Iterator[int]], Iterator[Any]]) -> _Mapped:
        return _Mapped(self._context, self._values, function)


class _Mapped:
    def __init__(
        self, context: InProcess, values: Sequence[int], function: Callable[[Iterator[int]], Iterator[Any]]
    ) -> None:
        self._context = context
        self._values = values
        self._function = function

    def collect(self) -> list[Any]:
        found: list[Any] = []
        for value in self._values:
            # what travels is bytes: nothing that only this process has may be among it
            sent = pickle.dumps(self._function)

            def task(value: int = value, sent: bytes = sent) -> list[Any]:
                return pickle.loads(pickle.dumps(list(pickle.loads(sent)(iter([value])))))

            made = self._context.around(task, value)
            self._context.tasks.append(made)
            found += made
        return found

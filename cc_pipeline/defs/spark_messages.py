"""Messages of a job on Spark, read from its mailbox while it runs.

Belongs here: how Dagster Pipes gets them. Not here: what they mean (engines/spark/messages), and what comes of them
(spark).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import dagster as dg
from dagster_pipes import PIPES_PROTOCOL_VERSION, PIPES_PROTOCOL_VERSION_FIELD

from cc_pipeline.engines.spark.mailbox import Mailbox
from cc_pipeline.engines.spark.messages import Payload


class Messages(dg.PipesBlobStoreMessageReader):
    """Messages of a job, from its mailbox. Ours go to ``told`` at once, while the job runs; Dagster would keep them
    until its end, and each of them for as long as the run lasts."""

    def __init__(self, mail: Mailbox) -> None:
        super().__init__(interval=0)
        self.told: SimpleQueue[Payload] = SimpleQueue()
        self._mail = mail
        self._finished = False

    @property
    def expected_writer_count(self) -> int:
        """One driver. Dagster's own says so with a warning that it may change."""
        return 1

    def finish(self) -> None:
        """Says that the job has ended. What it has sent is read; Dagster would wait ten seconds more for a farewell."""
        self._finished = True

    @contextmanager
    def get_params(self) -> Iterator[dict[str, Any]]:
        yield {"bucket": self._mail.bucket, "key_prefix": f"{self._mail.prefix}/messages"}

    def messages_are_readable(self, params: Mapping[str, Any]) -> bool:
        return True

    def download_messages_chunk(self, index: int, params: Mapping[str, Any]) -> str | None:
        finished = self._finished
        chunk = self._mail.read(f"{params['key_prefix']}/{index}.json")
        if chunk is None:
            closed = {PIPES_PROTOCOL_VERSION_FIELD: PIPES_PROTOCOL_VERSION, "method": "closed", "params": None}
            return json.dumps(closed) if finished else None
        others = []
        for line in chunk.decode().splitlines():
            message = json.loads(line)
            if message["method"] == "report_custom_message":
                self.told.put(message["params"]["payload"])
            else:
                others.append(line)
        # nothing at all would be taken for a chunk that is not there yet
        return "\n".join(others) or "\n"

    def no_messages_debug_text(self) -> str:
        return f"They would have come through s3://{self._mail.bucket}/{self._mail.prefix}."

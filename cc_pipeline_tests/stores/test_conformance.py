"""Our stores do what every store does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from cc_pipeline.stores.answer import S3Options, Store
from cc_pipeline.stores.opening import open_store
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.motoserver import CREDENTIALS, client_of, moto_server
from cc_pipeline_tests.stores.store_tests import StoreTests
from cc_pipeline_tests.weedserver import REGION, S3Server

_numbers = count()


class FolderTests(StoreTests):
    """``folder`` is where the objects are written."""

    @pytest.fixture(autouse=True)
    def objects_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "place"

    def write(self, objects: Mapping[str, bytes]) -> None:
        self.folder.mkdir()
        for key, data in objects.items():
            (self.folder / key).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / key).write_bytes(data)


class TestFolder(FolderTests):
    @contextmanager
    def open_place(self, objects: Mapping[str, bytes]) -> Iterator[Store]:
        self.write(objects)
        yield open_store(str(self.folder))


class TestHttp(FolderTests):
    is_writable = False

    @contextmanager
    def open_place(self, objects: Mapping[str, bytes]) -> Iterator[Store]:
        self.write(objects)
        with FaultServer(self.folder) as server:
            yield open_store(server.url)


class S3Tests(StoreTests):
    """``server`` has a bucket called ``lake``."""

    server: S3Server

    @pytest.fixture(autouse=True)
    def credentials(self, at: None, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", self.server.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", self.server.secret)

    @contextmanager
    def open_place(self, objects: Mapping[str, bytes]) -> Iterator[Store]:
        server, prefix = self.server, f"pre fix {next(_numbers)}"
        client = client_of(server.endpoint, server.key, server.secret)
        for key, data in objects.items():
            client.put_object(Bucket="lake", Key=f"{prefix}/{key}", Body=data)
        options = S3Options(server.endpoint, REGION)
        yield open_store(f"s3://lake/{prefix}", s3=options)


class TestMoto(S3Tests):
    @pytest.fixture(scope="class")
    def moto(self) -> Iterator[S3Server]:
        with moto_server("lake") as endpoint:
            yield S3Server(endpoint, *CREDENTIALS.values())

    @pytest.fixture(autouse=True)
    def at(self, moto: S3Server) -> None:
        self.server = moto


@pytest.mark.process
class TestSeaweed(S3Tests):
    """It checks signatures."""

    @pytest.fixture(autouse=True)
    def at(self, weed: S3Server) -> None:
        self.server = weed

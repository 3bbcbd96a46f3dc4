"""A real Spark cluster on loopback: a standalone master and workers of one core each, for tests and benchmarks.

Spark comes from ``.venv/spark`` (``make spark``), or from the environment's own pyspark. Everything is ended by the ids
of the sessions in which it was started, executors and Python workers too, however deep Spark has nested them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cc_pipeline_tests.ports import free_ports

#: The xdist group of tests that use a cluster: one worker of the suite runs all of them, and starts it once.
GROUP = "extensions/spark"
_START_SECONDS = 90.0
#: Five Javas start on a few cores: code that runs for seconds is not worth a second compilation.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS}
_JAVA = 17


def spark_home() -> Path | None:
    """The folder of Spark that tests use, or ``None``."""
    beside = Path(sys.prefix) / "spark" / "pyspark"
    if beside.is_dir():
        return beside
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def why_no_spark() -> str | None:
    """Why there can be no cluster here, for a person; ``None`` where there can be one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        return f"no Java {_JAVA} here (Debian: apt-get install openjdk-17-jre-headless)"
    said = subprocess.run(
        [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    ).stderr
    versions = [line.split("=")[1].strip() for line in said.splitlines() if "java.specification.version =" in line]
    if not versions or float(versions[0]) < _JAVA:
        return f"Spark needs Java {_JAVA}, this is Java {versions[0] if versions else 'of an unknown version'}"
    if spark_home() is None:
        return "no pyspark here; install it beside the locked set with: make spark"
    return None


@dataclass
class SparkCluster:
    """A running cluster. ``address`` is its master's, ``folder`` holds logs and the workers' folders.

    ``environment`` are the variables that a driver needs to be started with (for ``spark-submit``).
    """

    address: str
    folder: Path
    environment: dict[str, str]
    _worker_environment: dict[str, str]
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def add_worker(self, *names: str) -> None:
        """Starts workers and waits until the master has them."""
        for name in names:
            self._start_worker(name)
        for name in names:
            self._wait(name, "Successfully registered with master")

    def _start_worker(self, name: str) -> None:
        command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
        command += ["--webui-port", "0", "--work-dir", str(self.folder / name), self.address]
        self._start(name, command, self._worker_environment)

    def log(self, name: str) -> str:
        """What the master or a worker has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        program = Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class"
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                [str(program), *command], stdout=log, stderr=log, cwd=self.folder, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip

    def _wait(self, name: str, words: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._started[name].poll() is None:
            if words in self.log(name):
                return
            time.sleep(0.1)
        raise RuntimeError(f"Spark's {name} did not come up: {self.log(name)[-2000:]}")

    def stop(self) -> None:
        """Ends all that was started."""
        for name in list(self._started)[::-1]:
            _end(self._started.pop(name))


@contextmanager
def spark_cluster(
    folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None, *, brief: bool = False
) -> Iterator[SparkCluster]:
    """Runs a master and ``workers`` (named ``worker-1`` …) until the block is left.

    ``environment`` goes to the workers and so to what runs in them, such as credentials. Which Python they run the
    driver says (``PYSPARK_PYTHON``), by default that of this process. Drivers and executors of ``brief`` applications
    start at less cost, and would be slower in the long run. Skips the test where there is no Java 17 or no
    Spark.
    """
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "PYSPARK_PYTHON": sys.executable,
    }
    (folder / "conf").mkdir(exist_ok=True)
    # a driver's page of the job would be one more server; executors fit the workers' memory
    defaults = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.executor.memory": "768m"}
    defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.log.level": "WARN"}
    if brief:
        defaults |= {f"spark.{one}.extraJavaOptions": _JAVA_OPTIONS for one in ("driver", "executor")}
    (folder / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in defaults.items()))
    port, page = map(str, free_ports(2))
    address = f"spark://127.0.0.1:{port}"
    cluster = SparkCluster(address, folder, own, {**own, **_DAEMON, **(environment or {})})
    try:
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port]
        cluster._start("master", [*command, "--webui-port", page], own | _DAEMON)
        cluster._wait("master", "I have been elected leader")
        cluster.add_worker(*(f"worker-{number}" for number in range(1, workers + 1)))
        yield cluster
    finally:
        cluster.stop()


def _in_session(leader: int) -> list[int]:
    """The ids of all processes of the session that ``leader`` began. Spark's Python daemons have a group of their own,
    but nobody leaves the session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):  # gone meanwhile
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in ("Z", "X"):
                found.append(int(path.parent.name))
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the session of a process that we started. Until nothing is left: an executor may be starting another."""
    while left := _in_session(process.pid):
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.02)
    process.wait()

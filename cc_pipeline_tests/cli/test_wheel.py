"""The wheel, installed into an environment of its own and used from another folder; built without a compiler, so that
the twins of the compiled parts do the work."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient

from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.api.test_code_blocks import RUN, run_cells
from cc_pipeline_tests.wheel import REPOSITORY, install_wheel, run

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("wheel"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with a wheel that was built without a compiler."""
    return install_wheel(tmp_path_factory.mktemp("wheel"), CC="false")


def test_the_wheel_has_all_modules_and_not_the_tests(installed: Path, tmp_path: Path) -> None:
    there = run(
        installed / "python",
        "-c",
        "import cc_pipeline, sys; sys.stdout.write(cc_pipeline.__path__[0])",
        folder=tmp_path,
    )
    package = Path(there)
    assert package.is_relative_to(installed.parent)
    of = REPOSITORY / "cc_pipeline"
    for kind in ("*.py", "*.jinja", "*.trees", "py.typed"):
        wanted = {path.relative_to(of) for path in of.rglob(kind)}
        assert wanted
        assert {path.relative_to(package) for path in package.rglob(kind)} == wanted
    assert not list(package.rglob("*.so"))
    about = next(package.parent.glob("cc_pipeline-*.dist-info")) / "WHEEL"
    assert "Tag: py3-none-any\n" in about.read_text("utf-8")
    lacks = "import cc_pipeline; print(cc_pipeline.describe_missing_modules())"
    assert "5 of 5 are missing" in run(installed / "python", "-c", lacks, folder=tmp_path)
    assert not (package.parent / "cc_pipeline_tests").exists()


def test_the_demo_runs_from_any_folder(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "cc-pipeline", "demo", "--home", "home", "--pages", 40, folder=tmp_path)
    assert "planned  fetched  pending  lost" in said
    # what it advises next is what one can type there
    assert "cc-pipeline ui --home home" in said
    assert "make dev" not in said
    question = "SELECT count(*) > 0 FROM page_metadata"
    assert "true" in run(installed / "cc-pipeline", "sql", "--home", "home", question, folder=tmp_path)


def test_the_page_on_python_runs_where_the_wheel_is_installed(
    installed: Path, bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path
) -> None:
    [page] = [page for page in RUN if page.name == "python.md"]
    run_cells(installed / "python", RUN[page], tmp_path, bucket[0])
    assert (tmp_path / "data" / "cc.duckdb").exists()


def test_a_notebook_of_ten_cells_runs_in_a_kernel(
    installed: Path, bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(REPOSITORY / "docs" / "example.ipynb", as_version=4)
    assert len(notebook.cells) == 10 and not any(cell.get("outputs") for cell in notebook.cells)
    kernel = tmp_path / "jupyter" / "kernels" / "wheel" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    command = [str(installed / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": command, "display_name": "wheel", "language": "python"}), "utf-8")
    variables = {"JUPYTER_PATH": "jupyter", "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}
    for name, folder in {**variables, "XDG_CACHE_HOME": "cache"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(bucket[0]))
    client = NotebookClient(notebook, kernel_name="wheel", timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("<pre" in data.get("text/html", "") and "│" in data["text/html"] for data in shown) > 2
    assert {*pq.read_table(tmp_path / "example.parquet")["crawl"].to_pylist()} == {"CC-MAIN-2018-05", "CC-MAIN-2024-22"}


def test_dagster_finds_the_definitions_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    names = "from cc_pipeline.definitions import defs; print(*(job.name for job in defs().resolve_all_job_defs()))"
    assert "extract_targets" in run(installed / "python", "-c", names, folder=tmp_path)

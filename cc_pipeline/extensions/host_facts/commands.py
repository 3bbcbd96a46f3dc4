"""The commands ``facts``: facts of sites from data keyed by host, and the datasets of a home."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.api.run_steps import run_step, start_all_runs
from cc_pipeline.api.user_input import check_format
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.lookups import open_question
from cc_pipeline.cli.output import console, notice, progress_bars, warn, write_rows
from cc_pipeline.errors import EnvironmentFault, UserInputError, describe_unknown_name
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.claim import claim_home

if TYPE_CHECKING:
    import pyarrow as pa

    from cc_pipeline.api.lookups import LookupRequest
    from cc_pipeline.extensions.host_facts.annotations import Action
    from cc_pipeline.extensions.host_facts.dataset_question import Facts
    from cc_pipeline.extensions.host_facts.ranks import Ranks, RanksEstimate
    from cc_pipeline.extensions.host_facts.registered_datasets import RegisteredDataset

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Facts of hosts and URLs: sizes, ranks, links, and your own data (docs/extensions/host_facts.md).",
)
#: Columns that fit a terminal. All columns are in csv and jsonl, or can be named with --columns.
_TERMINAL_COLUMNS = ("crawl", "host", "fetch_200", "fetch_gone", "robots_200", "hcrank10", "prank10",
    "webgraph_indegree",
          "webgraph_outdegree")  # fmt: skip


@app.command("show")
def facts(
    targets: options.Targets,
    crawl: options.Crawls,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            help="A dataset to search; may be repeated (default: host-index, degrees, converted ranks, "
            "and added datasets).",
        ),
    ] = None,
    hosts: options.Hosts = None,
    action: Annotated[
        Path | None, typer.Option("--action", help="An action file of cc-index-annotations: filter and columns.")
    ] = None,
    argument: Annotated[
        list[str] | None, typer.Option("--arg", help="An argument of the action; may be repeated.")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Comma-separated columns, or 'all'.")] = None,
    captures: Annotated[
        bool,
        typer.Option("--captures", help="One row per located capture, from datasets keyed by URL (gneissweb-urls)."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Also store the facts in the table host_facts of cc.duckdb.")
    ] = False,
    price: Annotated[bool, typer.Option("--estimate", help="Only print what the lookup would read.")] = False,
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
    allow_gaps: options.AllowGaps = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    r"""Show facts of a site's hosts from datasets: size, ranks, robots.txt, links, and your own data.

    The first lookup in a crawl fetches the footers of a dataset's files (some 30 requests). The cost is printed to
    standard error. Results are stored: a repeated lookup sends no requests.

    [bold]Examples[/]

      cc-pipeline facts show example.com -c CC-MAIN-2025-18

      cc-pipeline facts show suffix:gov.uk -c newest \
        --hosts "prank10 > 5 and fetch_200 > 100" --format csv

      cc-pipeline facts show example.com -c CC-MAIN-2024-18 --captures \
        --dataset gneissweb-urls --format csv

      cc-pipeline facts show example.com -c 2024..2025 \
        --dataset host-index --columns crawl,host,fetch_200
    """
    from cc_pipeline.extensions.host_facts.dataset_question import refuse_gaps
    from cc_pipeline.extensions.host_facts.host_selection import datasets_for_crawl, facts_of

    check_format(output)
    applied_action = _action(action, argument or (), hosts)
    if captures and (keep or price):
        raise UserInputError("--captures only prints facts: leave out --keep and --estimate")
    with open_question(
        targets, crawl, source=source, home=home, allow_gaps=allow_gaps
    ) as question, progress_bars():  # fmt: skip
        if captures:
            located = _facts_of_captures(question, dataset or ["gneissweb-urls"], applied_action, columns)
            _write("facts of the captures", located, output)
            return
        datasets_by_crawl = {
            crawl_id: _datasets_to_ask(datasets_for_crawl(question.workspace, crawl_id), dataset, applied_action)
            for crawl_id in question.crawls
        }
        if price:
            _show_estimates(question, datasets_by_crawl, output)
            return
        answers = []
        for crawl_id in question.crawls:
            for target in question.targets:
                facts_found = facts_of(question.workspace, crawl_id, target, datasets_by_crawl[crawl_id])
                report_cost(crawl_id, target.definition, facts_found)
                refuse_gaps(question.workspace, facts_found, crawl_id)
                table = _apply_action(facts_found.table, applied_action, crawl_id)
                answers.append(_columns(table, columns, applied_action, output))
        if keep:
            _store_facts(question, [] if dataset is None else dataset)
    _write("facts of the hosts", answers, output)


def _write(title: str, answers: Sequence[pa.Table], output: str) -> None:
    """Prints all answers as one table. A dataset may have other columns in another crawl; each column
    keeps its name.
    """
    names = list(dict.fromkeys(name for table in answers for name in table.column_names))
    rows = [tuple(row.get(name) for name in names) for table in answers for row in table.to_pylist()]
    write_rows(title, names, rows, output)


def _facts_of_captures(
    question: LookupRequest, dataset_names: Sequence[str], action: Action | None, columns: str | None
) -> list[pa.Table]:
    """The located captures with the facts of each, by crawl and target."""
    from cc_pipeline.commoncrawl.target_text import to_run
    from cc_pipeline.extensions.host_facts.dataset_question import refuse_gaps
    from cc_pipeline.extensions.host_facts.host_facts import facts_of_captures
    from cc_pipeline.extensions.host_facts.host_selection import datasets_for_crawl
    from cc_pipeline.extraction.slice_selection import find_part_slices
    from cc_pipeline.lake.slice import LOCATE, Slice

    lake = question.workspace.lake
    answers = []
    for crawl in question.crawls:
        datasets_by_name = datasets_for_crawl(question.workspace, crawl)
        if unknown_names := [name for name in dataset_names if name not in datasets_by_name]:
            raise UserInputError(describe_unknown_name("dataset", unknown_names[0], datasets_by_name))
        datasets = [datasets_by_name[name].dataset for name in dataset_names]
        for target in question.targets:
            slices = find_part_slices(question.workspace, [Slice(crawl, target.slug)])
            if None in LOCATE.read_input_digests(lake, slices).values():
                raise EnvironmentFault(
                    f"the captures of {target.definition} in {crawl} are not located in this home",
                    f"Locate them: cc-pipeline run {to_run(target.slug, target.definition)} -c {crawl}",
                )
            where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
            located = lake.read("captures", where, ["crawl", "url", "url_surtkey", "fetch_time", "fetch_status"])
            facts_found = facts_of_captures(question.workspace, crawl, located, datasets)
            report_cost(crawl, target.definition, facts_found)
            refuse_gaps(question.workspace, facts_found, crawl)
            table = _apply_action(facts_found.table, action, crawl)
            answers.append(_columns(table, columns or "all", action, "csv"))
    return answers


def _store_facts(question: LookupRequest, datasets: Sequence[str]) -> None:
    """Fills the table of facts by a run, as the UI does, and publishes."""
    from cc_pipeline.defs.launcher import Launcher

    with Launcher(question.workspace) as launcher:
        launcher.add_targets(question.targets, question.crawls)
        filling = partial(
            launcher.run_listed_job, "fill_facts_of_targets", question.crawls, question.targets, datasets=list(datasets)
        )
        run_step("facts", lambda: start_all_runs(filling()))
        run_step("cc.duckdb", launcher.publish_changes)


def report_cost(crawl: str, target: str, facts_found: Facts) -> None:
    """Prints the cost of facts and their gaps to standard error."""
    cost = (
        f"{format_count(facts_found.requests, 'request')}, {human_bytes(facts_found.bytes)}"
        if facts_found.requests
        else "no request"
    )
    notice(
        f"{crawl}: facts of {target}: {format_count(facts_found.table.num_rows, 'row')}; {cost}, "
        f"{facts_found.seconds:.1f} s"
    )
    for note in facts_found.notes:
        notice(f"{crawl}: {note}")
    if not facts_found.table.num_rows and not facts_found.gaps:
        notice(f"{crawl}: no host of {target} is in these datasets: {', '.join(facts_found.versions)}")
    for name, gaps in facts_found.gaps.items():
        warn(
            f"{crawl}: {format_count(len(gaps), 'file')} of {name} could not be read, so rows may be missing; the "
            f"first: {gaps[0]}. Run this again in ten minutes, when the files are requested again"
        )


def _datasets_to_ask(
    datasets_by_name: dict[str, RegisteredDataset], dataset_names: Sequence[str] | None, action: Action | None
) -> list[RegisteredDataset]:
    from cc_pipeline.extensions.host_facts.host_selection import (
        add_host_index,
        datasets_for_filter,
        default_datasets,
        host_datasets,
    )

    added_names = [
        name
        for name, registered in datasets_by_name.items()
        if registered.file is not None and not registered.dataset.by_url
    ]
    names = list(dataset_names) if dataset_names else [*default_datasets(datasets_by_name), *added_names]
    return (
        host_datasets(datasets_by_name, add_host_index(datasets_by_name, names))
        if action is None
        else datasets_for_filter(action.where, datasets_by_name, names)
    )


def _action(file: Path | None, arguments: Sequence[str], where: str | None) -> Action | None:
    from cc_pipeline.commoncrawl.expressions import parse_filter
    from cc_pipeline.extensions.host_facts.annotations import Action, read_action
    from cc_pipeline.extensions.host_facts.datasets import read_definition, read_yaml

    if arguments and file is None:
        raise UserInputError("--arg is an argument of an action file; name it with --action")
    if file is None:
        return None if where is None else Action(parse_filter(where), ())
    if where is not None:
        raise UserInputError("--hosts and --action both select hosts; give one of them")
    return read_action(read_yaml(read_definition(file), str(file)), str(file), arguments)


def _apply_action(table: pa.Table, action: Action | None, crawl: str) -> pa.Table:
    if action is None:
        return table
    filter_result = action.where.match_table(table)
    if filter_result.unknown_count:
        notice(
            f"{crawl}: {format_count(filter_result.unknown_count, 'host', 'lack')} a value that the filter needs, "
            "which counts as no match"
        )
    if table.num_rows and not filter_result.count:
        notice(f"{crawl}: none of {table.num_rows:,} hosts matches")
    table = table.filter(filter_result.rows)
    for name, is_descending in reversed(action.order):
        _check_column(table, name)
        table = table.sort_by([(name, "descending" if is_descending else "ascending")])
    return table if action.limit is None else table.slice(0, action.limit)


def _columns(table: pa.Table, columns_text: str | None, action: Action | None, output: str) -> pa.Table:
    if columns_text == "all":
        return table
    names = (
        [name.strip() for name in columns_text.split(",")] if columns_text else list(action.columns) if action else []
    )
    for name in names:
        _check_column(table, name)
    if not names and output == "table":
        filter_columns = [name for name in action.where.columns if name not in _TERMINAL_COLUMNS] if action else []
        names = [name for name in (*_TERMINAL_COLUMNS, *filter_columns) if name in table.column_names]
    return table.select(names) if names else table


def _check_column(table: pa.Table, name: str) -> None:

    if name not in table.column_names:
        raise UserInputError(describe_unknown_name("column", name, table.column_names))


def _show_estimates(
    question: LookupRequest, datasets_by_crawl: dict[str, list[RegisteredDataset]], output: str
) -> None:
    from cc_pipeline.extensions.host_facts.dataset_files import estimate_harvest
    from cc_pipeline.extensions.host_facts.host_facts import estimate_host_lookups

    rows: list[Sequence[object]] = []
    for crawl in question.crawls:
        for dataset in datasets_by_crawl[crawl]:
            footer_estimate = estimate_harvest(question.workspace, dataset.dataset, crawl)
            if footer_estimate.files:
                rows.append(
                    (
                        crawl,
                        dataset.name,
                        "footers",
                        footer_estimate.files,
                        None,
                        footer_estimate.requests,
                        footer_estimate.bytes,
                        footer_estimate.bytes,
                    )
                )
                continue
            for target in question.targets:
                cost = estimate_host_lookups(question.workspace, crawl, target, [dataset.dataset])[dataset.name]
                rows.append(
                    (crawl, dataset.name, target.definition, None, cost.to_read, cost.requests, cost.bytes,
                     cost.likely_bytes)
                )  # fmt: skip
    columns = ["crawl", "dataset", "what", "files", "row groups", "requests", "bytes at most", "bytes likely"]
    write_rows("cost estimate", columns, rows, output)


@app.command("datasets")
def list_(output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
          home: options.Home = None) -> None:  # fmt: skip
    """List the datasets of this home: those of the program, and those that were added."""
    from cc_pipeline.extensions.host_facts.registered_datasets import known_datasets

    check_format(output)
    rows = []
    for registered in known_datasets(load_settings(home=home)).values():
        columns = registered.columns()
        subject = "captures" if registered.dataset.by_url else "domains" if registered.dataset.of_domains else "hosts"
        column_count = "all" if columns is None else f"{len(columns):,}"
        where = registered.dataset.root or "the source"
        rows.append(
            (
                registered.name,
                subject,
                registered.dataset.action,
                column_count,
                where,
                "" if registered.file is None else str(registered.file),
            )
        )
    write_rows("datasets", ["name", "about", "action", "columns", "where", "added in"], rows, output)


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="A YAML file: a dataset, or a join of cc-index-annotations.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the dataset in this home.")] = None,
    home: options.Home = None,
) -> None:
    """Add your own data by host, registered domain or URL: a list of sites, scores, labels.

    The data is stored in the home, as Parquet if the table is CSV or JSON.

    [bold]Examples[/]

      cc-pipeline facts add tranco.yaml

      cc-pipeline facts add join_spam.yaml --name spam
    """
    from cc_pipeline.extensions.host_facts.registered_datasets import add_dataset

    added = add_dataset(load_settings(home=home), file, name)
    columns = added.columns()
    gives = "all its columns" if columns is None else ", ".join(columns) or "no column: it only filters"
    notice(f"{added.name} was added to this home, with {gives}")


@app.command()
def remove(name: Annotated[str, typer.Argument(help="Name of an added dataset.")], home: options.Home = None) -> None:
    """Remove an added dataset. Facts that a run stored are kept."""
    from cc_pipeline.extensions.host_facts.registered_datasets import remove_dataset

    remove_dataset(load_settings(home=home), name)
    notice(f"{name} was removed")


@app.command()
def ranks(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="RELEASE",
            help="A release, such as cc-main-2026-may-jun-jul; without it, converted releases are listed.",
        ),
    ] = None,
    level: Annotated[str, typer.Option("--level", help="host or domain.")] = "host",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Read the ranks of a release of Common Crawl's web graph into this home.

    The ranks are published as one file of gigabytes, in the order of rank. This command shows the cost of reading it,
    asks for confirmation, and stores the ranks by host. Lookups then read a few kilobytes. The datasets host-ranks and
    domain-ranks use the stored ranks, for the crawls that the release spans. A stopped conversion leaves no files.

    [bold]Examples[/]

      cc-pipeline facts ranks cc-main-2026-may-jun-jul

      cc-pipeline facts ranks cc-main-2025-26-nov-dec-jan --level domain --yes

      cc-pipeline facts ranks
    """
    from cc_pipeline.extensions.host_facts.rank_text import LEVELS, parse_release
    from cc_pipeline.extensions.host_facts.ranks import all_ranks, convert_ranks, estimate_ranks, find_ranks
    from cc_pipeline.workspace.workspace import open_workspace

    requested_level = next((known_level for known_level in LEVELS if known_level == level), None)
    if requested_level is None:
        raise UserInputError(f"--level is {' or '.join(LEVELS)}, not {level}")
    requested_release = None if release is None else parse_release(release)
    settings = load_settings(source=source, home=home)
    if requested_release is not None:
        claim_home(settings)
    with open_workspace(settings) as workspace:
        if requested_release is None:
            all_stored = all_ranks(settings)
            for stored_ranks in all_stored:
                _show_ranks(stored_ranks)
            if not all_stored:
                notice(
                    "no ranks were read into this home. To read those of a release: cc-pipeline facts ranks RELEASE "
                    "(https://commoncrawl.org/web-graphs lists them)"
                )
            return
        ranks_here = find_ranks(settings, requested_release, requested_level)
        if ranks_here is None:
            price = estimate_ranks(workspace, requested_release, requested_level)
            _show_ranks_estimate(price)
            if not yes and not typer.confirm("Go on?"):
                raise typer.Exit(1)
            with progress_bars():
                ranks_here = convert_ranks(workspace, requested_release, requested_level, price)
        _show_ranks(ranks_here)
        if ranks_here.skipped:
            warn(f"skipped {format_count(ranks_here.skipped, 'line')} of {ranks_here.key} without the rank of a host")


def _show_ranks_estimate(price: RanksEstimate) -> None:
    notice(
        f"{price.key}: {human_bytes(price.bytes)} to read in {format_count(price.requests, 'request')}, about "
        f"{format_count(price.rows, 'row')}; "
        f"{human_bytes(price.disk)} of disk permanently, {human_bytes(price.scratch)} more during sorting, and "
        f"about {max(price.seconds / 60, 1):,.0f} min of work if the source is fast enough"
    )


def _show_ranks(ranks_: Ranks) -> None:
    console.print(
        f"{ranks_.release} {ranks_.level}: {ranks_.rows:,} {ranks_.level}s of {ranks_.nodes:,} nodes, "
        f"converted {ranks_.converted_at}",
        soft_wrap=True,
    )


COMMANDS = {"facts": Command(app, FEATURES, 30)}

"""Ranks of a web graph's release, generated as Common Crawl publishes them, with the traps of the published files.

Hosts stand reversed, in the order of rank, which is none of names. Releases of up to the end of 2025 have ``www.``
taken off, later ones keep it; ``www2.`` is kept in all. Numbers are as Java writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.key_ranges import reverse_dots
from cc_pipeline.extensions.host_facts.rank_text import LEVELS, Level, Release
from cc_pipeline.testing.mini_crawl import spec as seeded
from cc_pipeline.testing.mini_crawl.spec import gzip_member

_WWW: Final = "www."
#: Lines of a gzip member: the published files have one, tools for them may write many.
_MEMBER_LINES: Final = 50


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """What to generate: a release over ``hosts`` (plain, as pages name them).

    ``tied`` hosts in a row have one score, and positions of their own. ``members`` has the text in many gzip members.
    ``lines`` are added to both levels as they are.
    """

    release: Release
    hosts: tuple[str, ...]
    seed: int = 20120601
    tied: int = 3
    members: bool = False
    lines: tuple[str, ...] = ()


def write_graph(root: Path, spec: GraphSpec) -> dict[Level, list[dict[str, Any]]]:
    """Writes the ranks of hosts and of domains into a bucket; gives their rows as written, in the order of rank."""
    found: dict[Level, list[dict[str, Any]]] = {}
    for level in LEVELS:
        rows = _ranked(spec, level)
        names = ["harmonicc_pos", "harmonicc_val", "pr_pos", "pr_val", "host_rev"]
        names += ["n_hosts"] if level == "domain" else []
        lines = ["\t".join(f"#{name}" for name in names)]
        lines += ["\t".join(_text(row[name]) for name in names) for row in rows]
        lines += spec.lines
        path = root / spec.release.ranks_key(level)
        path.parent.mkdir(parents=True, exist_ok=True)
        step = _MEMBER_LINES if spec.members else len(lines)
        members = (lines[at : at + step] for at in range(0, len(lines), step))
        path.write_bytes(b"".join(gzip_member("".join(f"{line}\n" for line in own).encode()) for own in members))
        found[level] = rows
    return found


def nodes(hosts: Sequence[str], release: Release) -> list[str]:
    """The names of hosts in a release, reversed, each once."""
    found: dict[str, None] = {}
    for host in hosts:
        bare = host.removeprefix(_WWW)
        # off comes one www, where two labels remain
        stripped = not release.www_kept and bare != host and "." in bare
        found[reverse_dots(bare if stripped else host)] = None
    return list(found)


def _ranked(spec: GraphSpec, level: Level) -> list[dict[str, Any]]:
    counts: dict[str, int] = {}
    for node in nodes(spec.hosts, spec.release):
        domain = registered_domain(reverse_dots(node)) if level == "domain" else None
        name = node if level == "host" else reverse_dots(domain) if domain else None
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    names = sorted(counts, key=lambda name: seeded.drawn_number(spec.seed, spec.release.name, level, name))
    by_rank = sorted(counts, key=lambda name: seeded.drawn_number(spec.seed, "pr", spec.release.name, level, name))
    pr = {name: place for place, name in enumerate(by_rank, 1)}
    return [
        {
            "harmonicc_pos": place,
            # a score for some in a row, falling from tens of millions
            "harmonicc_val": 3.5e7 / (1 + (place - 1) // spec.tied),
            "pr_pos": pr[name],
            "pr_val": 0.005 / (1 + (pr[name] - 1) // spec.tied) ** 3,
            "host_rev": name,
            "n_hosts": counts[name],
        }
        for place, name in enumerate(names, 1)
    ]


def _text(value: float | str) -> str:
    """Java's text of a number: ``3.546816E7``, ``0.005439944157144132``, ``4.7E-9``."""
    if not isinstance(value, float):
        return str(value)
    if 1e-3 <= value < 1e7 or value == 0:
        return repr(value)
    digits, _, exponent = f"{value:.16e}".partition("e")
    for length in range(1, 17):
        short = f"{value:.{length}e}"
        if float(short) == value:
            digits, _, exponent = short.partition("e")
            break
    return f"{digits}E{int(exponent)}"

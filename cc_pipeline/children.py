"""Starts child processes so that no file of the current folder is run as code.

Python puts the current folder, or that of the script, first on ``sys.path``, where a downloaded ``html.py`` would
replace that of the standard library. No child gets such a path, and none inherits an empty or relative entry of
``PYTHONPATH``, which means the current folder too. A process that reads untrusted content has an environment of listed
variables, and so no secrets. All processes of this package are started here.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

Process: TypeAlias = "subprocess.Popen[bytes]"

#: Variables about the machine that a process may need: language, time zone, temporary files, libraries, the
#: interpreter. None is secret.
_NEUTRAL: Final = (
    *("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "PATH", "TEMP", "TMP", "TMPDIR", "TZ", "SYSTEMROOT"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
    *("MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "ARROW_DEFAULT_MEMORY_POOL", "ASAN_OPTIONS"),
    *("PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
    *("PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONFAULTHANDLER", "PYTHONWARNINGS"),
)
#: Prefixes of variables for processes that open the lake or a source.
REMOTE: Final = (
    *("AWS_", "SSL_CERT_", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)

#: Runs ``main()`` of a module of ours. The package is loaded from the folder of the parent's. That folder is on the
#: path only if the interpreter does not find the package by itself, and then as the last one.
_BOOT: Final = """\
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
program, root, others = sys.argv[1:4]
sys.argv[:4] = [program]
sys.path += filter(None, [*([] if find_spec("cc_pipeline") else [root]), *others.split(os.pathsep)])
found = PathFinder.find_spec("cc_pipeline", [root])
sys.modules["cc_pipeline"] = package = module_from_spec(found)
found.loader.exec_module(package)
import_module(program).main()
"""


def python_command(program: str, *arguments: object, needed_modules: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs ``main()`` of ``program``, a module of this package, in a new interpreter.

    Its ``sys.path`` is that of the interpreter, followed by the folders of the packages of the modules
    ``needed_modules`` that are not ours, and those of ``PYTHONPATH``, which may have libraries of this process. The
    current folder is not on it. Raises ``ValueError`` for a module ``needed_modules`` without a package."""
    folders = dict.fromkeys(_folder_of(module) for module in needed_modules if not module.startswith("cc_pipeline."))
    folders |= dict.fromkeys(
        entry
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if os.path.isabs(entry) and os.path.exists(entry) and not os.path.samefile(entry, os.curdir)
    )
    words = (program, _folder_of(__name__), os.pathsep.join(folders))
    return [sys.executable, "-P", "-c", _BOOT, *words, *map(str, arguments)]


def module_command(module: str, *arguments: object) -> list[str]:
    """Returns the command that runs ``module``, a program of a library, in a new interpreter."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def neutral_environment(*begins: str) -> dict[str, str]:
    """Returns the variables about the machine, and those with the prefixes ``begins``; never ``PYTHONPATH``."""
    variables = {
        name: value for name, value in os.environ.items() if name in _NEUTRAL or name.startswith(begins or ("\0",))
    }
    return {**variables, **_SAFE}


def whole_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns all variables of this process with ``changes``, for programs that read settings and secrets themselves.
    Of ``PYTHONPATH`` only the absolute entries are kept."""
    return _without_current_folder({**os.environ, **(changes or {})})


def isolate_descendants() -> None:
    """Excludes the current folder from the path of this process and of every Python that a library starts. For programs
    only: those who import this package may want it on their path."""
    path = os.environ.pop("PYTHONPATH", "")
    os.environ.update(_without_current_folder({"PYTHONPATH": path}))
    # Python has made relative entries absolute
    relative = {os.path.abspath(entry) for entry in path.split(os.pathsep) if path and not os.path.isabs(entry)}
    sys.path[:] = [entry for entry in sys.path if entry and entry not in relative]


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> Process:
    """Starts a process with an environment of this module; ``options`` are those of ``subprocess.Popen``. Raises
    ``OSError``."""
    return subprocess.Popen(command, env=_check_environment(environment), **options)


def run(
    command: Sequence[str], environment: Mapping[str, str], input_bytes: bytes = b"", timeout: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a process to its end and returns its output. Raises ``subprocess.TimeoutExpired`` and ``OSError``."""
    return subprocess.run(
        command,
        env=_check_environment(environment),
        input=input_bytes,
        capture_output=True,
        check=False,
        timeout=timeout,
    )


def usage_of(process: int) -> tuple[int, str]:
    """Returns the bytes of memory of a process, and its processor time as a text that changes as it grows; 0 and an
    empty text if the system does not tell."""
    with suppress(OSError, ValueError, IndexError), open(_PROC.format(process), "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return int(fields[21]) * mmap.PAGESIZE, str(int(fields[11]) + int(fields[12]))
    with suppress(OSError, ValueError):
        memory, time = run(["ps", "-o", "rss=,time=", "-p", str(process)], neutral_environment()).stdout.split()
        return int(memory) * 1024, time.decode()
    return 0, ""


_SAFE: Final = {"PYTHONSAFEPATH": "1"}
#: The file in which Linux shows what a process uses.
_PROC: Final = "/proc/{}/stat"


def _check_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return _without_current_folder({**environment})


def _without_current_folder(environment: dict[str, str]) -> dict[str, str]:
    entries = environment.pop("PYTHONPATH", "").split(os.pathsep)
    absolute_entries = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))
    return {**environment, **_SAFE, **({"PYTHONPATH": absolute_entries} if absolute_entries else {})}


def _folder_of(module: str) -> str:
    """Returns the folder that contains the package of a loaded module. Raises ``ValueError`` for a module without a
    package."""
    package = sys.modules[module.partition(".")[0]]
    if not hasattr(package, "__path__"):
        raise ValueError(f"{module} lies in no package, so no other process can import it")
    return os.path.dirname(os.path.abspath(next(iter(package.__path__))))

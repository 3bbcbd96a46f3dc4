"""What a failed run tells a person: the words of what its step raised, whole."""

from __future__ import annotations

import dagster as dg
import pytest
from cc_pipeline.defs.run_failures import RunFailure, describe_failure

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError


class Silent(Exception):
    pass


@pytest.mark.parametrize(
    ("raised", "error_class", "reason"),
    [
        (EnvironmentFault("a: b: c", "Look: here."), "EnvironmentFault", "a: b: c\nLook: here."),
        (DataFault(DataKind.MALFORMED, "x.gz", 3, "no: list"), "DataFault", "x.gz at byte 3: no: list"),
        (UserInputError("UserInputError: no crawl"), "UserInputError", "UserInputError: no crawl"),
        # of errors that are not ours the words alone are a riddle
        (KeyError("url"), "KeyError", "KeyError: 'url'"),
        (ValueError("two\nlines: here"), "ValueError", "ValueError: two\nlines: here"),
    ],
)
def test_the_reason_is_what_the_step_raised(raised: Exception, error_class: str, reason: str) -> None:
    @dg.asset
    def breaks() -> None:
        raise raised from OSError("cause: not this")

    failed = failure_of(breaks)
    assert (failed.error_class, failed.reason) == (error_class, reason)


def test_an_error_without_words_is_named() -> None:
    @dg.asset
    def breaks() -> None:
        raise Silent

    failed = failure_of(breaks)
    assert failed.error_class == "Silent"
    assert failed.reason.endswith("Silent")


def failure_of(asset: dg.AssetsDefinition) -> RunFailure:
    definitions = dg.Definitions(assets=[asset], jobs=[dg.define_asset_job("job")])
    result = definitions.resolve_job_def("job").execute_in_process(raise_on_error=False)
    return describe_failure(event for event in result.all_events if event.is_step_failure)

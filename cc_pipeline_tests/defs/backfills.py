"""Backfills as the UI asks for them."""

from __future__ import annotations

from cc_pipeline_tests.defs.test_dagster_process import Server

EXTRACTED = ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items")


def backfill(ui: Server, keys: tuple[str, ...]) -> str:
    """Asks for a backfill as the UI's dialog does; gives its id."""
    answer = ui.ask(
        """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
            __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
        params={"assetSelection": [{"path": [name]} for name in EXTRACTED], "partitionNames": list(keys), "tags": []},
    )["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    return str(answer["backfillId"])


def backfill_status(ui: Server, backfill_id: str) -> str:
    answer = ui.ask(
        "query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }",
        id=backfill_id,
    )
    return str(answer["partitionBackfillOrError"]["status"])

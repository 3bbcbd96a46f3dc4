from collections.abc import Iterator

from cc_pipeline.grouping import group_within


def test_a_group_ends_before_any_of_its_sums_would_be_above_its_limit() -> None:
    pages = [("a", 3), ("b", 3), ("c", 5), ("d", 1), ("e", 1), ("f", 1)]
    groups = group_within(pages, (3, 6), lambda page: (1, page[1]))
    assert ["".join(name for name, _ in group) for group in groups] == ["ab", "cd", "ef"]


def test_a_larger_item_comes_alone_or_behind_items_that_weigh_nothing() -> None:
    assert list(group_within([0, 9, 0, 1, 2, 9], (3,), lambda size: (size,))) == [[0, 9], [0, 1, 2], [9]]
    assert list(group_within([], (3,), lambda size: (size,))) == []


def test_a_group_is_given_before_items_behind_the_next_are_read() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(5):
            read.append(number)
            yield number

    assert next(group_within(items(), (2,), lambda number: (1,))) == [0, 1]
    assert read == [0, 1, 2]

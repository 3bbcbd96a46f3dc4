from cc_pipeline.progress import list_first


def test_the_first_texts_are_named_and_the_others_counted() -> None:
    assert list_first(["a", "b"], 2) == "a, b"
    assert list_first(["a", "b", "c"], 2, "; ") == "a; b and 1 more"
    assert list_first([str(number) for number in range(1_002)], 1) == "0 and 1,001 more"

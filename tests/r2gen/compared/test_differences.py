from r2gen.compared.differences import ADDED, MISSING, SAME, marked


def test_words_that_differ_are_marked() -> None:
    assert marked("the heart is normal", "the heart is enlarged") == [
        (SAME, "the heart is"),
        (MISSING, "normal"),
        (ADDED, "enlarged"),
    ]


def test_case_and_punctuation_make_no_difference() -> None:
    assert marked("The lungs are clear. No effusion.", "the lungs are clear . no effusion .") == [
        (SAME, "the lungs are clear. no effusion.")
    ]


def test_missing_words_are_at_their_place() -> None:
    assert marked("no effusion or pneumothorax .", "no pneumothorax .") == [
        (SAME, "no"),
        (MISSING, "effusion or"),
        (SAME, "pneumothorax."),
    ]


def test_nothing_written_is_all_missing() -> None:
    assert marked("clear lungs", "") == [(MISSING, "clear lungs")]
    assert marked("", "clear") == [(ADDED, "clear")]
    assert marked("", "") == []

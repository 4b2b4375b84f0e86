from autotune.reports.texts import ADDED, MISSING, SAME, Piece, marked


def test_words_that_differ_are_marked():
    assert marked("the heart is normal", "the heart is enlarged") == [
        Piece(SAME, "the heart is"),
        Piece(MISSING, "normal"),
        Piece(ADDED, "enlarged"),
    ]


def test_case_and_punctuation_make_no_difference():
    assert marked("The lungs are clear. No effusion.", "the lungs are clear . no effusion .") == [
        Piece(SAME, "the lungs are clear. no effusion.")
    ]


def test_what_is_missing_stands_where_it_would_be():
    assert marked("no effusion or pneumothorax .", "no pneumothorax .") == [
        Piece(SAME, "no"),
        Piece(MISSING, "effusion or"),
        Piece(SAME, "pneumothorax."),
    ]


def test_nothing_written_is_all_missing():
    assert marked("clear lungs", "") == [Piece(MISSING, "clear lungs")]
    assert marked("", "clear") == [Piece(ADDED, "clear")]
    assert marked("", "") == []

"""Tables of the report."""

from autotune.display import words
from autotune.reports import tables


def test_two_scores_with_one_heading_have_a_column_each():
    assert words.metric("bleu_1") == words.metric("BLEU-1")
    columns = [(words.metric(name), [text]) for name, text in (("bleu_1", "0.2"), ("BLEU-1", "0.3"))]
    table = tables._by_model(["baseline"], columns)
    assert (table.head, table.rows) == (("model", "BLEU-1", "BLEU-1"), (("baseline", "0.2", "0.3"),))

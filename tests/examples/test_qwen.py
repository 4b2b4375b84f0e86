"""The Transformers example: its data, its packing, and a trial of its search space."""

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys

import pytest

from tests.test_examples import EXAMPLES, one_trial

# Looked for and not imported: collecting the tests would wait for it.
_IS_THERE = importlib.util.find_spec("transformers") is not None
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _IS_THERE, reason="needs transformers")]

NAME = "qwen_sft_transformers"
LENGTH = 128


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A copy of the example with a little data."""
    copy = tmp_path_factory.mktemp("examples") / NAME
    shutil.copytree(EXAMPLES / NAME, copy, ignore=shutil.ignore_patterns("data", "runs"))
    size = ("--train", "1500", "--held-out", "100")
    subprocess.run([sys.executable, "make_data.py", *size], cwd=copy, check=True)
    return copy


@pytest.fixture
def train(place, monkeypatch):
    monkeypatch.syspath_prepend(place)
    yield importlib.import_module("train")
    sys.modules.pop("train")


@pytest.fixture
def tokenizer(place):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(place / "data" / "tokenizer")


@pytest.fixture
def rows(place, train, tokenizer):
    examples = train.read(place / "data" / "held_out.jsonl")
    return train.rows(examples[:20], tokenizer, LENGTH)


def test_held_out_examples_are_not_trained_on(place):
    asked = [
        {json.loads(line)["instruction"] for line in (place / "data" / name).read_text().splitlines()}
        for name in ("train.jsonl", "held_out.jsonl")
    ]
    assert (len(asked[0]), len(asked[1])) == (1500, 100)
    assert not asked[0] & asked[1]


def test_the_answers_are_to_be_learnt_with_their_end_and_nothing_else(place, train, tokenizer):
    example = {"instruction": "Sort: 3 1 2.", "answer": "1 2 3"}
    [row] = train.rows([example], tokenizer, LENGTH)
    learnt = [label for label in row["labels"] if label != train.NOT_LEARNT]
    assert tokenizer.decode(learnt) == "1 2 3<end>"
    assert tokenizer.decode(row["input_ids"]) == "Sort: 3 1 2. 1 2 3<end>"


def test_a_packed_row_has_whole_examples_in_their_order(rows, train, tokenizer):
    packed = train.packed(rows, LENGTH, tokenizer.pad_token_id)
    assert len(packed) < len(rows) / 2
    assert {len(values) for row in packed for values in row.values()} == {LENGTH}
    tokens = [token for row in packed for token in row["input_ids"] if token != tokenizer.pad_token_id]
    assert tokens == [token for row in rows for token in row["input_ids"]]
    begins = sum(row["position_ids"].count(0) for row in packed)
    padded = sum(tokenizer.pad_token_id in row["input_ids"] for row in packed)
    assert begins == len(rows) + padded


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_example_sees_nothing_of_the_others_in_its_row(rows, train, tokenizer, attention):
    import torch

    torch.manual_seed(0)
    model = train.network(train.ModelArguments(attn_implementation=attention), tokenizer)
    collate = train.Collator(tokenizer, label_pad_token_id=train.NOT_LEARNT)
    packed = train.packed(rows, LENGTH, tokenizer.pad_token_id)
    with torch.no_grad():
        apart, together = (model(**collate(found), num_items_in_batch=1).loss for found in (rows, packed))
    assert together.item() == pytest.approx(apart.item(), rel=1e-4)


@pytest.mark.soak
def test_a_trial_counts_tokens_and_learns(place, tmp_path):
    wanted = {
        "micro_batch_size": 2,
        "learning_rate": 2e-3,
        "precision": "bf16",
        "packing": True,
        "activation_checkpointing": False,
        "model.attn_implementation": "sdpa",
    }
    found = one_trial(place / "space.yaml", 16_000, tmp_path, **wanted)
    first, last = found.curve[:2]
    assert (first.samples, last.samples) == pytest.approx((8000, 16_000), rel=0.1)
    assert last.quality > first.quality
    assert found.throughput.samples_per_s > 0

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.bench_decode import plain_search
from r2gen import decode
from r2gen.decode import draw, search
from r2gen.errors import InputError
from r2gen.model import EncoderDecoder
from r2gen.packing import Packing

from .golden import RECORDING, tiny

LENGTH = 14


@pytest.fixture
def recorded():
    """The recorded decoder and its four encoded images."""
    decoder = RECORDING.decoder()
    with torch.no_grad():
        return decoder, decoder.encode(RECORDING.tensor("in/att_feats"))


def build(seed: int, end: float = 0.0, **settings: object) -> tuple[EncoderDecoder, Tensor]:
    """Returns a random decoder, its end token made likelier by `end`, and five encoded images."""
    torch.manual_seed(seed)
    decoder = EncoderDecoder(tiny(**settings), 12, 20).eval()
    with torch.no_grad():
        decoder.logit.weight.mul_(3)
        decoder.logit.bias[0] += end
        return decoder, decoder.encode(torch.randn(5, 6, 12))


def count_steps(decoder):
    """Returns a list that gets the number of images at every step of `decoder`."""
    steps = []
    decoder.logit.register_forward_pre_hook(lambda _, inputs: steps.append(len(inputs[0])))
    return steps


@pytest.mark.parametrize(
    ("name", "beams", "block"),
    [("beam3", 3, False), ("beam5", 5, False), ("greedy_noblock", 1, False), ("greedy_block", 1, True)],
)
def test_the_words_are_the_originals(recorded, name, beams, block):
    decoder, encoded = recorded
    ids = search(decoder, encoded, beam_size=beams, max_length=LENGTH, block_trigrams=block)
    assert ids.dtype == torch.int64
    assert torch.equal(ids, RECORDING.tensor(f"dec/{name}/seq").long())


def test_sampled_words_are_the_originals(recorded):
    """Recorded after torch.manual_seed(7), on the CPU."""
    decoder, encoded = recorded
    torch.manual_seed(7)
    ids = draw(decoder, encoded, max_length=LENGTH)
    assert ids.dtype == torch.int64
    assert torch.equal(ids, RECORDING.tensor("dec/beam1_default_is_multinomial_seed7/seq").long())


def test_words_that_are_certain_are_drawn_as_they_are_found():
    decoder, encoded = build(3)
    with torch.no_grad():
        decoder.logit.weight.mul_(1e4)
    drawn = draw(decoder, encoded, max_length=LENGTH)
    assert torch.equal(drawn, search(decoder, encoded, beam_size=1, max_length=LENGTH))


def test_a_repeated_trigram_is_drawn_less_often():
    """With two words and no end, nearly every trigram soon is a repeated one."""
    decoder = EncoderDecoder(tiny(), 12, 2).eval()
    with torch.no_grad():
        decoder.logit.weight.zero_()
        decoder.logit.bias.copy_(torch.tensor([-1e4, 2.0, 0.0]))
        encoded = decoder.encode(torch.randn(50, 6, 12))
    torch.manual_seed(0)
    often, seldom = (
        draw(decoder, encoded, max_length=30, block_trigrams=b).eq(1).sum() for b in (False, True)
    )
    assert seldom < 0.9 * often


def test_an_image_gets_the_same_report_alone_and_in_a_batch(recorded):
    decoder, encoded = recorded
    together = search(decoder, encoded, beam_size=3, max_length=LENGTH)
    alone = [search(decoder, image[None], beam_size=3, max_length=LENGTH) for image in encoded]
    assert torch.equal(torch.cat(alone), together)


@pytest.mark.parametrize("end", [-9.0, 0.0, 2.0])
@pytest.mark.parametrize("beams", [1, 2, 3, 7])
def test_stopping_early_and_dropping_images_change_no_word(beams, end):
    """Compares with a search that recomputes every prefix, keeps all images, and never stops early."""
    for seed in range(6):
        decoder, encoded = build(seed, end)
        expected = plain_search(decoder, encoded, beams, LENGTH)
        assert torch.equal(search(decoder, encoded, beam_size=beams, max_length=LENGTH), expected)


class Bigrams:
    """Replaces the decoder's state: the next word depends only on the last one, by a table."""

    def __init__(self, table: Tensor) -> None:
        self.table = table.log()
        self.steps = 0

    def step(self, ids: Tensor) -> Tensor:
        self.steps += 1
        return self.table[ids]

    def select(self, parents: Tensor, images: Tensor) -> None:
        """Does nothing: there is no state per beam."""


def search_bigrams(monkeypatch, table, beams, length):
    """Returns the words of a single image, and the number of steps."""
    state = Bigrams(torch.tensor(table))
    monkeypatch.setattr(decode, "_State", lambda *_: state)
    decoder = EncoderDecoder(tiny(), 12, len(table) - 1)
    return search(decoder, torch.zeros(1, 1, 16), beam_size=beams, max_length=length)[0].tolist(), state.steps


def spelled_out(table, beams, length):
    """The original's beam search of one image, spelled out; no early stop."""
    running, done = [(0.0, [])], []
    for step in range(1, length + 1):
        candidates = [
            (total + math.log(chance), [*words, word])
            for total, words in running
            for word, chance in enumerate(table[words[-1] if words else 0])
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        running = []
        for total, words in candidates[:beams]:
            ended = words[-1] == 0 or step == length
            done += [(total, words)] if ended else []
            running.append((total - 1000 if ended else total, words))
    best = max(done, key=lambda candidate: candidate[0])[1]
    return best + [0] * (length - len(best))


def test_the_search_is_the_originals_for_any_chances(monkeypatch):
    random = np.random.default_rng(0)
    for _ in range(150):
        classes, length = random.integers(2, 6, size=2).tolist()
        table = random.dirichlet(np.full(classes, 0.7), size=classes).tolist()
        beams = int(random.integers(1, classes + 1))
        words, _ = search_bigrams(monkeypatch, table, beams, length)
        assert words == spelled_out(table, beams, length)


def test_the_search_continues_only_while_a_running_beam_is_ahead(monkeypatch):
    to_be_beaten = [[0.4, 0.6], [0.9, 0.1]]  # probability 0.4 of ending at once, 0.54 after one word
    assert search_bigrams(monkeypatch, to_be_beaten, 2, 9) == ([1] + [0] * 8, 2)
    unbeaten = [[0.4, 0.6], [0.6, 0.4]]  # 0.36 after one word, and 0.24 left for longer ones
    assert search_bigrams(monkeypatch, unbeaten, 2, 9) == ([0] * 9, 2)


def test_images_that_are_finished_are_dropped():
    decoder, encoded = build(4, end=1.0)
    steps = count_steps(decoder)
    ids = search(decoder, encoded, beam_size=3, max_length=200)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == 5 > steps[-1]
    assert len(steps) < 200
    assert ids.shape == (5, 200)


def test_a_decoder_that_ends_at_once_takes_one_step():
    decoder, encoded = build(0, end=50.0)
    steps = count_steps(decoder)
    assert search(decoder, encoded, beam_size=3, max_length=60).eq(0).all()
    assert steps == [5]


def test_a_decoder_that_never_ends_fills_the_length():
    decoder, encoded = build(0, end=-1e4)
    steps = count_steps(decoder)
    assert search(decoder, encoded, beam_size=2, max_length=9).gt(0).all()
    assert len(steps) == 9


def test_more_beams_find_likelier_reports():
    """In total, not for every image: a beam search is not exact."""
    decoder, encoded = build(3)

    def total(beams):
        ids = search(decoder, encoded, beam_size=beams, max_length=8)
        prefixes = torch.cat((torch.zeros(5, 1, dtype=torch.long), ids), 1)
        return sum(score(decoder, image[None], row) for image, row in zip(encoded, prefixes, strict=True))

    assert total(10) > total(1)


def score(decoder, encoded, ids):
    """Returns the teacher-forced log-probability of one report, its end included."""
    words = ids[:-1][None]
    mask = torch.ones(words.size(1), words.size(1), dtype=torch.bool).tril()
    packing = Packing.full(words)
    with torch.no_grad():
        embedded = decoder.model.tgt_embed(words)[0]
        memory = decoder.model.rm(embedded, decoder.model.rm.initial(1), packing.running)
        log_probs = decoder.log_probs(decoder.model.decoder(embedded, encoded, memory, mask, packing))
    length = min(int(ids[1:].ne(0).sum()) + 1, len(ids) - 1)
    return log_probs[torch.arange(length), ids[1 : length + 1]].sum().item()


def test_repeated_trigrams_cost():
    words = torch.tensor([[[1, 2, 3, 1, 2]], [[1, 2, 3, 4, 2]], [[5, 5, 5, 5, 5]]])
    expected = torch.zeros(3, 1, 6)
    expected[0, 0, 3] = 1.386
    expected[2, 0, 5] = 3 * 1.386
    torch.testing.assert_close(decode._trigram_penalty(words, 6), expected)
    assert decode._trigram_penalty(words[:, :, :2], 6).eq(0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_generating_works_under_autocast(dtype):
    decoder, encoded = build(2)
    with torch.autocast("cpu", dtype=dtype):
        ids = search(decoder, encoded, beam_size=3, max_length=10)
    assert ids.shape == (5, 10)


def test_sampling_draws_words_anew():
    decoder, encoded = build(0)
    torch.manual_seed(1)
    ids = draw(decoder, encoded, max_length=10)
    assert not torch.equal(draw(decoder, encoded, max_length=10), ids)


def test_more_beams_than_words_are_refused():
    decoder, encoded = build(0)
    with pytest.raises(InputError, match=r"beam_size must not exceed the 21 words.* got 22"):
        search(decoder, encoded, beam_size=22, max_length=5)


def test_a_model_that_gives_no_numbers_ends():
    decoder, encoded = build(0)
    assert search(decoder, encoded * torch.nan, beam_size=3, max_length=5).eq(0).all()
    assert draw(decoder, encoded * torch.nan, max_length=5).shape == (5, 5)

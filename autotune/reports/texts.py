"""Which words of a generated report differ from the reference. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from string import punctuation

SAME, ADDED, MISSING = "same", "added", "missing"


@dataclass(frozen=True)
class Piece:
    """Some words in a row: the `same` in both, `added` by the model, or `missing` from what it wrote."""

    kind: str
    text: str


def marked(reference: str, written: str) -> list[Piece]:
    """What was `written`, word by word against the `reference`; case and punctuation make no difference."""
    theirs, ours = _words(reference), _words(written)
    matcher = SequenceMatcher(None, [_key(w) for w in theirs], [_key(w) for w in ours], autojunk=False)
    pieces = []
    for _, from_theirs, to_theirs, from_ours, to_ours in matcher.get_opcodes():
        missing, found = theirs[from_theirs:to_theirs], ours[from_ours:to_ours]
        is_same = [_key(w) for w in missing] == [_key(w) for w in found]
        pieces += [] if is_same else [_piece(MISSING, missing)]
        pieces += [_piece(SAME if is_same else ADDED, found)]
    return [piece for piece in pieces if piece.text]


def _piece(kind: str, words: Sequence[str]) -> Piece:
    return Piece(kind, " ".join(words))


def _words(text: str) -> list[str]:
    """The words with the punctuation that follows them: tokenizers set it apart."""
    words: list[str] = []
    for word in text.split():
        if words and not _key(word):
            words[-1] += word
        else:
            words.append(word)
    return words


def _key(word: str) -> str:
    return word.casefold().strip(punctuation)

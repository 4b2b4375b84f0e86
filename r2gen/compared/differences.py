"""The words of a report that differ from its reference."""

from difflib import SequenceMatcher
from string import punctuation

SAME, ADDED, MISSING = "same", "added", "missing"


def marked(reference: str, written: str) -> list[tuple[str, str]]:
    """Splits `written` and the `reference` into runs of words, each with its kind.

    A run is in both, was added by the model, or is missing from its report. Case and punctuation are ignored.
    """
    theirs, ours = _words(reference), _words(written)
    matcher = SequenceMatcher(None, [_key(w) for w in theirs], [_key(w) for w in ours], autojunk=False)
    pieces = []
    for kind, from_theirs, to_theirs, from_ours, to_ours in matcher.get_opcodes():
        missing, added = theirs[from_theirs:to_theirs], ours[from_ours:to_ours]
        pieces += [] if kind == "equal" else [(MISSING, " ".join(missing))]
        pieces += [(SAME if kind == "equal" else ADDED, " ".join(added))]
    return [(kind, text) for kind, text in pieces if text]


def _words(text: str) -> list[str]:
    """Returns the words, each with its trailing punctuation, which tokenizers set apart."""
    words: list[str] = []
    for word in text.split():
        if words and not _key(word):
            words[-1] += word
        else:
            words.append(word)
    return words


def _key(word: str) -> str:
    return word.casefold().strip(punctuation)

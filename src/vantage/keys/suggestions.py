"""What an unknown name probably means: a typing error, or a name of another library."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from vantage.keys.other_libraries import KEYS, METHODS


def nearest(name: str, candidates: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """'; did you mean X?' for a candidate that differs from `name` by a typing error, or ''."""
    # A much longer name with another beginning is another word: frames is not max_frames.
    lower = {candidate.lower(): candidate for candidate in candidates
             if abs(len(candidate) - len(name)) <= 3 or candidate.startswith(name)}
    # In a short name, letters in another order are too many differences for the cutoff.
    close = [each for each in lower if sorted(each) == sorted(name.lower())]
    close += difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return f"; did you mean {spell(lower[close[0]])}?" if close else ""


def suggestion(name: str, candidates: Iterable[str], *, flags: bool = False) -> str:
    """As `nearest`, and for keys of other libraries: "; Stable-Baselines3's n_steps is ..."."""
    known = {*candidates}
    spell = _flag if flags else str
    word = name.removeprefix("no_")
    for each in (name, word):
        if text := _counterpart(each, known, spell):
            return text
    if text := nearest(word, known, spell):
        return text
    # Without shorter keys: `word` is often a plural with another meaning, as checkpoints is.
    longer = [each for each in KEYS if len(each) >= len(word)]
    close = difflib.get_close_matches(word, longer, n=1, cutoff=0.92)
    return _counterpart(close[0], known, spell) if close else ""


MOST_UNKNOWN = 8
"""Unknown names that one message explains."""


def listed(texts: Iterable[str], total: int) -> str:
    """The messages for up to `MOST_UNKNOWN` of `total` names as one."""
    more = f"; and {total - MOST_UNKNOWN} more" if total > MOST_UNKNOWN else ""
    return "; ".join(texts) + more


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _counterpart(word: str, known: set[str], spell: Callable[[str], str]) -> str:
    """What a user gives instead of the key `word` of another library; '' if it is not one."""
    library, text = KEYS.get(word, ("", ""))
    own = re.findall("{([a-z_]+)}", text)
    if not text or (own and known.isdisjoint(own)):
        return ""
    return f"; {library} {word} {text.format_map({name: spell(name) for name in own})}"


def method_elsewhere(owner: str, name: str, candidates: Iterable[str]) -> str:
    """'; write ...' for an attribute of other libraries, or as `suggestion`."""
    if text := METHODS[owner].get(name):
        return f"; {text}"
    return suggestion(name, [each for each in candidates if not each.startswith("_")])

"""Searches that ask for exactly one kind of line, so that a limit of hits cannot hide it behind its likes."""

from __future__ import annotations

import re
from typing import Final

from geartrain.models._offline._question import Aim, Question, Term, found_as

DEFINES: Final = (
    r"\b(?:def|class|func|function|fn|struct|enum|interface|trait|type|impl|module|macro_rules!|#define)\s+"
    r"(?:\(.*\)\s*)?"
)
_COUNTED_MIN: Final = 2
_WORDS_MAX: Final = 3
_SAYS: Final = r"(?:is|are|means?|stands for|denotes|holds|describes)\b"


def exact_definition(question: Question) -> str:
    """Return a pattern of the definitions of just what is asked for, without any of which it is only a part."""
    words = [re.escape(name) for name in question.names]
    if not words and question.aims & {Aim.WHERE, Aim.WHAT_IS, Aim.HOW}:
        single = [term.word for term in question.strong if not term.soft and " " not in term.word]
        words = [re.escape(word) for word in single[:_WORDS_MAX] if re.fullmatch(r"\w+", word)]
    return rf"{DEFINES}\*?(?:{'|'.join(words)})\b" if words else ""


def declared_value(question: Question) -> str:
    """Return a pattern of lines that declare a name of the question with its type and a value."""
    names = "|".join(re.escape(name) for name in question.names)
    return rf"^\s*(?:{names})\s*:[^=()]+=\s*[^=\s]" if names and Aim.DEFAULTS in question.aims else ""


def counted(question: Question) -> str:
    """Return a pattern of names with a figure that hold two words of a question for an amount: events_per_run."""
    roots = [term.root or term.word for term in question.strong if not term.soft and " " not in term.word]
    roots = [re.escape(root) for root in roots if re.fullmatch(r"\w+", root)][:_WORDS_MAX]
    if Aim.AMOUNT not in question.aims or len(roots) < _COUNTED_MIN:
        return ""
    pairs = [rf"{one}\w*{other}" for one in roots for other in roots if one != other]
    pairs += [rf"max\w*{roots[0]}", rf"{roots[0]}\w*max"]
    return rf"^\s*(?:\w+ )*\w*(?:{'|'.join(pairs)})\w*\s*(?::[^=]*)?[=:]\s*[-+(\d]"


def said_to_be(question: Question) -> str:
    """Return a pattern of the lines of a text that say what the subject of the question is."""
    if Aim.WHAT_IS not in question.aims or question.aims & {Aim.DEFAULTS, Aim.AMOUNT, Aim.SETTINGS, Aim.CALLERS}:
        return ""
    subject = next((term for term in question.strong if not term.soft), None)
    return _defining(subject) if subject else ""


def _defining(subject: Term) -> str:
    begins = r"^\s*(?:[#>*+-]+\s+|\d+[.)]\s+)?[*_`\"“]*(?:an?\s|the\s)?[*_`\"“]*"
    return rf"{begins}(?:{subject.pattern})\w{{0,3}}(?:[*_`\"”]*\s*(?:$|[.:—–]|-\s)|[*_`\"”]*\s+{_SAYS})"


def handling(question: Question) -> tuple[str, ...]:
    """Return patterns of lines of code that have to do with what a question wants to see handled.

    First those with its own words, so that the words that answer for them do not hide any.
    """
    terms = handled(question)[:2]
    choices = (
        "|".join(term.pattern for term in terms),
        "|".join(found_as(w) for term in terms for w in term.wider[:5]),
    )
    return tuple(
        rf"(?:{words})\w*[^\w\s]|\b(?:except|raise|catch|throw|if)\b.*(?:{words})" for words in choices if words
    )


def handled(question: Question) -> tuple[Term, ...]:
    """Return what a question wants to see handled, if it asks where that is done."""
    asks = Aim.WHERE in question.aims and re.search(
        r"\b(?:handled?|handles|handling|dealt with|caught|treated|enforced)\b", question.text, re.IGNORECASE
    )
    return tuple(term for term in question.strong if " " not in term.word) if asks and not question.names else ()

"""How much a file counts as a witness: sources and documents say it, tests, histories and copies only repeat it.

What a question asks for by name counts in full: a question about tests is answered from tests.
"""

from __future__ import annotations

import re
from typing import Final

from geartrain.models._offline._question import Aim, Question
from geartrain.models._offline._words import forms, word_set

_TEST_FILE: Final = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__|e2e|fixtures?|testdata|chaos|conformance)/|"
    r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|[^/]*[.-]test|[^/]+[._]spec|conftest)\.\w+$"
)
# The first column says what it is, by a pattern of the path; the second what a line of it counts.
_FACTORS: Final = (
    (_TEST_FILE, 0.12),
    (re.compile(r"(?:^|/)\.(?!github/|gitlab|ci/|circleci/)[^/]*(?:/|$)|(?:^|/)__pycache__/"), 0.08),
    (re.compile(r"(?:^|/)(?:_?vendor(?:ed)?|node_modules|third_party|dist|build|extern(?:al)?)/|\.min\.\w+$"), 0.15),
    (re.compile(r"_pb2\.pyi?$|\.generated\.|_generated\.|(?:^|/)generated/|\.(?:lock|map|svg|po|pot)$"), 0.12),
    (
        re.compile(
            r"(?:^|/)(?:change(?:log|s)?|history|news|release[-_ ]?notes)\b[^/]*$|(?:^|/)(?:changes|news)/",
            re.IGNORECASE,
        ),
        0.2,
    ),
    (re.compile(r"(?:^|/)(?:licen[cs]e|copying|notice|authors|record|constraints|requirements)\b[^/]*$", re.I), 0.15),
    (re.compile(r"(?:^|/)[^/]+\.(?:dist|egg)-info/(?!METADATA)"), 0.15),
    (re.compile(r"(?:^|/)testing/"), 0.3),
    (re.compile(r"(?:^|/)benchmarks?/"), 0.25),
    (re.compile(r"\.(?:csv|json|xml|html?|[1-8])$"), 0.4),
    (re.compile(r"(?:^|/)(?:examples?|samples?|demos?|scripts?)/|(?:^|/)(?:demo|example)s?\.\w+$"), 0.5),
    (re.compile(r"\.pyi$|(?:^|/)(?:Makefile|pyproject\.toml|setup\.\w+)$"), 0.6),
)
# Where a stranger begins to read.
FRONT_FILES: Final = re.compile(
    r"(?:^|/)(?:readme[^/]*|__init__\.py|__main__\.py|pyproject\.toml|package\.json|cargo\.toml|go\.mod|"
    r"(?:index|main|mod|lib|doc)\.\w+|(?:index|overview|about|introduction|contents)[^/]*)$",
    re.IGNORECASE,
)
_TEST_WORDS: Final = forms("test") | forms("spec")
_PROSE_ENDINGS: Final = word_set("md rst txt text adoc org tex")
_TEXTS_WITHOUT_ENDING: Final = re.compile(
    r"(?:^|/)(?:[^/]*makefile|dockerfile|vagrantfile|jenkinsfile|rakefile|gemfile)$"
)


def file_factor(path: str, question: Question) -> float:
    """Return how much what stands in *path* counts for *question*."""
    wanted = forms(question.text)
    factor = 1.0
    for pattern, weight in _FACTORS:
        found = pattern.search(path)
        if found and wanted.isdisjoint(forms(found.group())) and not (pattern is _TEST_FILE and about_tests(question)):
            factor = min(factor, weight)
    return factor


def about_tests(question: Question) -> bool:
    """Say whether *question* asks for tests."""
    return Aim.TESTS in question.aims or bool(forms(question.text) & _TEST_WORDS)


def is_test(path: str) -> bool:
    """Say whether *path* is that of a test or of what tests need."""
    return _TEST_FILE.search(path) is not None


def is_prose(path: str) -> bool:
    """Say whether *path* names a plain text."""
    name = path.rpartition("/")[2]
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    # Another name without an ending, or with one that is only a dot's: LICENSE, README, METADATA.
    return ending in _PROSE_ENDINGS or (not ending and not _TEXTS_WITHOUT_ENDING.search(path.lower()))

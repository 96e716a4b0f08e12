"""How a project is worked with: which files tell a stranger, and which of their lines.

The table names for each practice what its lines say, what its commands look like, and how an answer begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from geartrain.models._offline._question import Aim


@dataclass(frozen=True, slots=True)
class Practice:
    """One practice. `says` and `command` are patterns of lines, `folders` of folders that belong to it."""

    lead: str
    says: str
    command: str
    files: str = ""
    folders: str = r"(?!)"
    nothing: str = ""

    def value_of(self, text: str) -> float:
        """Return how much a line says about the practice."""
        said = bool(re.search(self.says, text, re.IGNORECASE)) + 2.0 * bool(re.search(self.command, text))
        return said * (0.3 if _ASIDE.search(text) else 1.0)


# Targets, badges and links say that something exists, not how it is done.
_ASIDE: Final = re.compile(r"^\s*\.PHONY|^\[!\[|^!\[|^\s*<|shields\.io|^\s*@")

TABLE: Final[Mapping[Aim, Practice]] = MappingProxyType(
    {
        Aim.TESTS: Practice(
            lead="It is tested like this",
            says=r"\btests?\b|\btest(?:ed|ing|paths)\b|\bpytest\b",
            command=r"\bmake (?:test|check)\b|\bpytest\b|\btox\b|\bnox\b|\bnpm (?:run )?test|\byarn test|\bcargo test|"
            r"\bgo test\b|\bmvn test|\bgradlew? test|\bctest\b|\bunittest\b|\bjest\b|\bvitest\b|\bmocha\b|^test:",
            files=r"(?:^|/)(?:makefile|tox\.ini|noxfile\.py|pyproject\.toml|package\.json|setup\.cfg|pytest\.ini)$",
            folders=r"(?:^|/)(?:tests?|specs?|__tests__|e2e)$",
            nothing="Nothing that was found says how it is tested",
        ),
        Aim.INSTALL: Practice(
            lead="It is installed like this",
            says=r"\binstall",
            command=r"\bpip3? install|\bpipx \w|\buv (?:add|pip|tool)|\bnpm i(?:nstall)?\b|\byarn add|"
            r"\bcargo (?:install|add)|\bgo (?:get|install)\b|\bapt(?:-get)? install|\bbrew install|"
            r"\bmake install|\bconda install|\bgit clone|\./configure",
            files=r"(?:^|/)install[^/]*$",
            nothing="Nothing that was found says how it is installed",
        ),
        Aim.RUN: Practice(
            lead="It is run like this",
            says=r"\brun\b|\busage\b|\bquick ?start\b|\bgetting started\b|\bto use\b",
            command=r"^\s*\$ \S|\bmake run\b|\bpython3? -m \w|\bnpm (?:run )?start|\bnpx \w|\bcargo run\b|\bgo run\b|"
            r"\bdocker (?:run|compose)\b",
            files=r"(?:^|/)(?:makefile|package\.json)$",
            nothing="Nothing that was found says how it is run",
        ),
        Aim.LICENCE: Practice(
            lead="Its licence",
            says=r"\blicen[cs]e",
            command=r"\bMIT\b|\bApache\b|\bBSD\b|\bA?L?GPL|\bISC\b|\bMPL\b|\bUnlicense\b|\bPSF\b|Artistic License",
            files=r"(?:^|/)(?:licen[cs]e|copying|pyproject\.toml|package\.json|metadata|cargo\.toml)[^/]*$",
            nothing="Nothing that was found names a licence",
        ),
        Aim.NEEDS: Practice(
            lead="What it needs",
            says=r"\brequire[sd]?\b|\bdependenc(?:y|ies)\b|\bneeds?\b",
            command=r"^\s*\"?(?:dev)?(?:d|D)ependencies\"?\s*[=:]|^requires-python|^Requires-\w+:|\binstall_requires|"
            r"\b(?:Python|Node(?:\.js)?|Java|Go|Rust) (?:>=? ?)?\d",
            files=r"(?:^|/)(?:pyproject\.toml|package\.json|cargo\.toml|go\.mod|setup\.\w+|requirements[^/]*|metadata)$",
            nothing="Nothing that was found says what it needs",
        ),
    }
)

_FIRST: Final = re.compile(r"^readme[^/]*$", re.IGNORECASE)
_GUIDES: Final = re.compile(r"^(?:contributing|hacking|develop\w*|install|testing)[^/]*$", re.IGNORECASE)
_CHECKS: Final = re.compile(r"^\.(?:ci|github|gitlab|circleci)[/.]|^\.travis\.yml$")
_DOCUMENTS: Final = re.compile(r"^docs?/.*\.(?:md|rst|txt|adoc)$", re.IGNORECASE)


def standing(practice: Practice, path: str) -> float:
    """Return how much *path* is a place where a stranger reads about the practice; 0 if it is none."""
    name = path.rpartition("/")[2]
    depth = 0.15 * path.count("/")
    if practice.files and re.search(practice.files, path, re.IGNORECASE):
        return max(0.2, (1.2 if practice is TABLE[Aim.LICENCE] else 0.8) - depth)
    if _FIRST.match(name):
        return max(0.2, 1.0 - depth)
    if _GUIDES.match(name):
        return max(0.2, (1.1 if practice is TABLE[Aim.TESTS] else 0.8) - depth)
    if _CHECKS.match(path):
        return 0.7
    return max(0.2, 0.6 - depth) if _DOCUMENTS.match(path) else 0.0

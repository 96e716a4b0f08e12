"""What a line of source text looks like, in the languages whose definitions begin with a word, and in C's family."""

from __future__ import annotations

import re
from typing import Final

from geartrain.models._offline._words import word_set

_MODIFIERS: Final = (
    r"^\s*(?:(?:export|public|private|protected|internal|static|abstract|final|async|pub(?:\(\w+\))?|default|inline|"
    r"extern|unsafe|override|virtual|sealed|const)\s+)*"
)
# After the word a name, and after the name what only code has: "class of service" in a comment defines nothing.
_DEFINITION: Final = re.compile(
    _MODIFIERS + r"(?:(?:def|class|struct|enum|interface|trait|protocol|impl|typedef|namespace|object|record)\s+"
    r"\*?([A-Za-z_][\w.:]*?)\s*(?=[(\[:{<;=]|$|\s+(?:for|extends|implements)\b)|"
    r"(?:func|function\*?|fn|defp?|defun|sub|macro_rules!)\s+(?:\([^)]*\)\s*)?([A-Za-z_][\w.-]*)\s*(?=[(<{:]|$)|"
    r"type\s+([A-Za-z_]\w*)\s*(?:<[^>]*>)?\s*(?==|struct|interface|func|\[)|"
    r"(?:defmodule|module)\s+([A-Z][\w.]*)(?:\s+do)?\s*$|"
    r"#\s*define\s+(\w+)|"
    r"(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^()]*\)\s*=>|\w+\s*=>))"
)
# A C or Java function: at the margin or in a class, a type, a name, a parenthesis, and no semicolon.
_C_FUNCTION: Final = re.compile(r"^(?:\w[\w:<>,*&\[\] ]*[ *&])(\w+)\s*\([^;=]*\)?\s*(?:\{.*|const.*|throws .*)?$")
_C_ENDINGS: Final = word_set("c cc cpp cxx cs h hpp hh java m mm dart swift kt scala")
_CONSTANT_NAME: Final = re.compile(r"^\s*(?:\w+\s+){0,3}(_*[A-Z][A-Z0-9_]{2,})\s*(?::[^=]*)?=")


def is_definition(path: str, text: str) -> bool:
    """Say whether *text* begins the definition of something."""
    return bool(title_of(path, text)) and not _CONSTANT_NAME.match(text)


def title_of(path: str, text: str) -> str:
    """Return the name that the line *text* of *path* defines, constants included; or an empty string."""
    found = _DEFINITION.match(text)
    if found:
        return next((name for name in found.groups() if name), "")
    found = _CONSTANT_NAME.match(text)
    if found is None and path.rpartition(".")[2].lower() in _C_ENDINGS:
        found = _C_FUNCTION.match(text)
    return found.group(1) if found else ""

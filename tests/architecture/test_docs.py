"""What the pages say is there is there."""

from __future__ import annotations

import re

from _source import ROOT

REPOSITORY = ROOT.parents[1]
PAGES = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "changes").glob("*.md")]
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
SCRIPT = re.compile(r"\b(?:tests|examples|benchmarks)/[\w/.-]+\.py\b")
FRAGMENT = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed|security)\.md")


def test_every_link_leads_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in LINK.findall(CODE.sub("", page.read_text("utf-8")))]

    assert links
    assert [(str(page), target) for page, target in links if not (page.parent / target).exists()] == []


def test_every_script_that_a_page_names_is_there() -> None:
    scripts = {(str(page), path) for page in PAGES for path in SCRIPT.findall(page.read_text("utf-8"))}

    assert scripts
    assert [(page, path) for page, path in sorted(scripts) if not (REPOSITORY / path).exists()] == []


def test_every_change_has_a_name_that_says_its_kind() -> None:
    names = [page.name for page in (REPOSITORY / "changes").iterdir() if page.name != "README.md"]

    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []

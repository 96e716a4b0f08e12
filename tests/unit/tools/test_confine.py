"""Paths as text: what may be asked for at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.tools import PathRefused
from geartrain.tools._confine import names_of, parted, root_of


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (".", ()),
        ("", ()),
        ("a", ("a",)),
        ("./a//b/./c/", ("a", "b", "c")),
        ("...", ("...",)),
        ("a\nb/~", ("a\nb", "~")),
        ("C:\\..\\x", ("C:\\..\\x",)),
    ],
)
def test_a_path_is_a_list_of_names(path: str, names: tuple[str, ...]) -> None:
    assert names_of(path) == names


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/passwd", "must be relative to the root folder"),
        ("//x", "must be relative"),
        ("..", r"must not contain '\.\.'"),
        ("a/../b", r"must not contain '\.\.'"),
        ("a/..", r"must not contain '\.\.'"),
        ("a\0b", "must not contain NUL"),
        ("\ud800", "must be valid text"),
        ("a/" * 65, "at most 64 parts"),
    ],
)
def test_a_path_that_leads_out_or_nowhere_is_refused(path: str, reason: str) -> None:
    with pytest.raises(PathRefused, match=reason) as refused:
        names_of(path)

    assert len(str(refused.value)) < 400
    str(refused.value).encode()


@pytest.mark.parametrize("path", ["", ".", "./", "a/", "a/."])
def test_the_root_or_a_folder_is_no_name_of_a_file(path: str) -> None:
    with pytest.raises(PathRefused, match="must name a file"):
        parted(path)


@given(st.text() | st.lists(st.sampled_from(["..", ".", "", "a", "/", "\0", "~", "..."])).map("/".join))
def test_no_path_has_a_name_that_leads_up_or_to_somewhere_else(path: str) -> None:
    try:
        names = names_of(path)
    except PathRefused:
        return

    assert not {"..", ".", ""} & set(names)
    assert not any("/" in name or "\0" in name for name in names)


@pytest.mark.parametrize("context", [{}, {"root": ""}, {"root": None}, {"root": b"/x"}])
def test_a_run_without_a_root_has_no_files(context: dict[str, object]) -> None:
    with pytest.raises(PathRefused, match="this run has no root folder; start it with context="):
        root_of(context)


@pytest.mark.parametrize("root", ["relative", "./x", "/a\0b"])
def test_a_root_must_mean_the_same_in_every_process(root: str) -> None:
    with pytest.raises(PathRefused, match="must be an absolute path"):
        root_of({"root": root})

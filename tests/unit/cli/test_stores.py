from __future__ import annotations

from pathlib import Path

import pytest

from geartrain.cli._errors import StoreNotFound
from geartrain.cli._stores import KNOWN_MAX, Index, near_store, store_to_read, store_to_run_in


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index({"XDG_STATE_HOME": str(tmp_path / "state")})


def made(folder: Path) -> Path:
    path = folder / ".geartrain" / "runs.db"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_the_nearest_store_above_is_taken(tmp_path: Path) -> None:
    outer, inner = made(tmp_path), made(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "c").mkdir()

    assert near_store(tmp_path / "a" / "b" / "c") == inner
    assert near_store(tmp_path / "a") == outer


def test_a_new_run_makes_its_store_here_whatever_is_above(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "a").mkdir()

    place = store_to_run_in(None, tmp_path / "a")

    assert place.path == tmp_path / "a" / ".geartrain" / "runs.db"
    assert (place.path.parent / ".gitignore").read_text() == "*\n"


def test_a_named_store_is_taken_as_it_is_and_nothing_is_made(tmp_path: Path, index: Index) -> None:
    named = tmp_path / "x.db"

    assert store_to_run_in(named, tmp_path).path == named
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreNotFound):
        store_to_read(named, tmp_path, index)


def test_where_there_is_no_store_those_used_lately_are_named(tmp_path: Path, index: Index) -> None:
    known = made(tmp_path / "project")
    index.note(known)
    (tmp_path / "elsewhere").mkdir()

    with pytest.raises(StoreNotFound) as found:
        store_to_read(None, tmp_path / "elsewhere", index)

    assert found.value.known == (str(known),)


def test_the_index_has_the_newest_first_once_and_a_hundred_at_most(tmp_path: Path, index: Index) -> None:
    for number in range(KNOWN_MAX + 5):
        index.note(tmp_path / f"{number}.db")
    index.note(tmp_path / "50.db")

    names = [path.name for path in index.read()]

    assert names[:2] == ["50.db", f"{KNOWN_MAX + 4}.db"]
    assert len(names) == len(set(names)) == KNOWN_MAX


def test_what_is_no_absolute_path_in_the_index_is_passed_over(tmp_path: Path, index: Index) -> None:
    index.note(tmp_path / "a.db")
    file = tmp_path / "state" / "geartrain" / "stores"
    file.write_bytes(b"relative.db\n\n/with\0nul\n\xff\n" + file.read_bytes())

    assert index.read() == [tmp_path / "a.db"]


@pytest.mark.parametrize("name", ["two\nlines.db", "line\u2028separator.db"])
def test_a_path_that_is_no_line_is_not_noted(tmp_path: Path, index: Index, name: str) -> None:
    index.note(tmp_path / name)

    assert index.read() == []


def test_an_index_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    index = Index({"XDG_STATE_HOME": str(tmp_path / "file")})

    index.note(tmp_path / "a.db")

    assert index.read() == []


def test_without_a_home_there_is_no_index() -> None:
    index = Index({"XDG_STATE_HOME": "relative", "HOME": ""})

    index.note(Path("/a.db"))

    assert index.read() == []

"""A folder of notes as memory: what is read, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geartrain.errors import InvalidValue
from geartrain.runtime import Agent
from geartrain.tools import FileFailed, Note, notes_folder


def noted(folder: Path, notes: dict[str, str]) -> Path:
    for name, text in notes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_notes_are_read_under_their_names_in_a_fixed_order(tmp_path: Path) -> None:
    noted(tmp_path, {"b.md": "second\n", "a.md": "first", "sub/c.md": "third", "x.txt": "no note"})

    assert notes_folder(tmp_path)(None) == Note("## a.md\nfirst\n\n## b.md\nsecond\n\n## sub/c.md\nthird")


def test_notes_may_be_pinned(tmp_path: Path) -> None:
    noted(tmp_path, {"a.md": "x"})

    assert notes_folder(tmp_path, pinned=True)(None) == Note("## a.md\nx", pinned=True)


def test_notes_are_read_anew_each_time(tmp_path: Path) -> None:
    provider = notes_folder(tmp_path)
    assert provider(None) is None

    noted(tmp_path, {"a.md": "x"})

    assert provider(None) == Note("## a.md\nx")


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = noted(tmp_path / "outside", {"secret.md": "secret"})
    folder = noted(tmp_path / "notes", {"a.md": "x"})
    os.symlink(outside, folder / "linked")
    os.symlink(outside / "secret.md", folder / "b.md")

    assert notes_folder(folder)(None) == Note("## a.md\nx")


def test_notes_that_are_too_much_are_left_out_and_counted(tmp_path: Path) -> None:
    noted(tmp_path, {"a.md": "x" * 500, "b.md": "y" * 600, "c.md": "z" * 100})

    note = notes_folder(tmp_path, bytes_max=700)(None)

    assert note == Note(f"## a.md\n{'x' * 500}\n\n## c.md\n{'z' * 100}\n\n[notes left out, as they are too much: 1]")


def test_of_very_many_notes_the_first_are_read(tmp_path: Path) -> None:
    noted(tmp_path, {f"{n:04}.md": "x" for n in range(510)})

    note = notes_folder(tmp_path)(None)

    assert note is not None
    assert note.text.count("##") == 500
    assert note.text.endswith("[notes left out, as they are too much: 10]")


def test_folders_deeper_than_eight_are_not_read(tmp_path: Path) -> None:
    noted(tmp_path, {f"{'d/' * depth}n.md": f"at {depth}" for depth in range(12)})

    note = notes_folder(tmp_path)(None)

    assert note is not None
    assert [f"at {depth}" in note.text for depth in (0, 8, 9, 11)] == [True, True, False, False]


def test_what_is_no_text_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\x00x")

    assert notes_folder(tmp_path)(None) == Note("## a.md\n\\xff\\x00x")


def test_a_folder_that_is_not_there_fails(tmp_path: Path) -> None:
    with pytest.raises(FileFailed, match="no such file or folder"):
        notes_folder(tmp_path / "none")(None)


def test_a_relative_folder_stays_the_one_it_was_when_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(tmp_path, {"notes/a.md": "x"})
    monkeypatch.chdir(tmp_path)
    provider = notes_folder("notes")
    monkeypatch.chdir("/")

    assert provider(None) == Note("## a.md\nx")


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(InvalidValue, match="bytes_max"):
        notes_folder(".", bytes_max=0)


def test_two_folders_are_two_providers_by_their_names(tmp_path: Path) -> None:
    shop, own = notes_folder(tmp_path, name="shop"), notes_folder(tmp_path)

    assert list(Agent("clerk", context=[shop, own]).providers) == ["shop", "notes"]

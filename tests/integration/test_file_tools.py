"""The tools for files, on real folders."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.tools import (
    Done,
    FileFailed,
    NotDone,
    PathRefused,
    PatternRefused,
    ThreadPool,
    Tool,
    ToolContext,
    _files,
    _search,
    file_tools,
    invoke,
    list_dir,
    read_file,
    search_code,
    verify,
    write_file,
)

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    (tmp_path / "only-outside").touch()
    (tmp_path / "outside" / "only-outside").touch()
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "README.md").write_text("# Title\r\nText é\nlast")
    (root / "src" / "a.py").write_text("import os\n\ndef main():\n    pass\n")
    (root / "src" / "deep" / "b.py").write_text("def Main(x): ...\n")
    return root


@pytest.fixture
def context(root: Path) -> ToolContext:
    return ToolContext(context={"root": str(root)})


def test_a_folder_is_listed_in_order_of_names(root: Path, context: ToolContext) -> None:
    (root / "line\nbreak").touch()
    (root / "link").symlink_to("README.md")
    os.mkfifo(root / "pipe")
    (root / os.fsdecode(b"not\xffutf8")).touch()

    assert list_dir(context).split("\n") == [
        "README.md (21 bytes)",
        r"line\nbreak (0 bytes)",
        "link (symbolic link, not followed)",
        r"not\udcffutf8 (0 bytes)",
        "pipe (not a regular file)",
        "src/",
    ]
    assert list_dir(context, "src") == "a.py (32 bytes)\ndeep/"


def test_an_empty_folder_says_so(root: Path, context: ToolContext) -> None:
    (root / "empty").mkdir()

    assert list_dir(context, "empty") == "(empty folder)"


def test_a_large_folder_is_listed_in_part_and_says_so(root: Path, context: ToolContext) -> None:
    for number in range(800):
        (root / f"file-{number:04}.txt").touch()

    text = list_dir(context)

    shown = text.count("\n")
    assert len(text.encode()) < 15_200
    assert text.endswith(f"[{802 - shown:,} more entries; list a folder in it, or use search_code]")


def test_lines_are_read_with_their_numbers(context: ToolContext) -> None:
    assert read_file(context, "README.md") == "1: # Title\n2: Text é\n3: last"
    assert read_file(context, "README.md", 2, 1) == "2: Text é\n[the file goes on; continue with start_line=3]"
    assert read_file(context, "./src//a.py", start_line=4) == "4:     pass"


def test_a_long_file_is_read_in_parts_that_fit_the_context(root: Path, context: ToolContext) -> None:
    (root / "long").write_text("".join(f"{number} {'x' * 90}\n" for number in range(1, 1_001)))

    read, start = [], 1
    while start:
        text = read_file(context, "long", start, 10_000)
        assert len(text.encode()) < 15_200
        *lines, last = text.split("\n")
        start = int(last.partition("start_line=")[2][:-1]) if last.startswith("[the file") else 0
        read += lines if start else [*lines, last]

    assert [line.partition(": ")[2].split()[0] for line in read] == [str(number) for number in range(1, 1_001)]


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_a_line_that_is_too_long_is_cut_and_says_so(ending: bytes, root: Path, context: ToolContext) -> None:
    """IN-6."""
    (root / "wide").write_bytes(b"y" * 10_000_000 + ending + b"next" * bool(ending))

    first, *rest = read_file(context, "wide").split("\n")

    assert first == f"1: {'y' * 2_000} [… the line has 10,000,000 bytes]"
    assert rest == (["2: next"] if ending else [])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "(empty file)"),
        (b"\n", "1: "),
        (b"a\n\nb\n", "1: a\n2: \n3: b"),
        (b"caf\xe9 \x1b", r"1: caf\xe9 \x1b"),
        (b"x" * 1_999 + b"\n", "1: " + "x" * 1_999),
        (b"x" * 2_000 + b"\n", "1: " + "x" * 2_000),
    ],
)
def test_a_small_file_is_read_as_clean_text(data: bytes, text: str, root: Path, context: ToolContext) -> None:
    (root / "small").write_bytes(data)

    assert read_file(context, "small") == text


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "no such file or folder"),
        ("src", "is a folder"),
        ("README.md/x", "part of it is a file or a symbolic link"),
        ("x" * 300, "a name in it is too long"),
        ("binary", "is not text; it has 3 bytes"),
        ("pipe", "is not a regular file"),
        ("socket", "is not a regular file"),
        ("to_file", "is a symbolic link; links are not followed"),
        ("dangling", "is a symbolic link"),
        ("loop", "is a symbolic link"),
        ("to_folder/secret.txt", "part of it is a file or a symbolic link"),
        ("inside_link/a.py", "part of it is a file or a symbolic link"),
    ],
)
def test_what_is_not_read_is_refused_without_waiting(path: str, reason: str, root: Path, context: ToolContext) -> None:
    (root / "binary").write_bytes(b"a\0b")
    os.mkfifo(root / "pipe")
    (root / "to_file").symlink_to(root.parent / "secret.txt")
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    (root / "to_folder").symlink_to(root.parent / "outside")
    (root / "inside_link").symlink_to("src")
    with socket.socket(socket.AF_UNIX) as listening:
        descriptor = os.open(root, os.O_RDONLY)  # the path of a socket must be short
        listening.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)

        with pytest.raises(FileFailed, match=reason) as refused:
            read_file(context, path)

    assert str(root) not in str(refused.value)


def test_a_line_behind_the_end_is_refused_with_the_number_of_lines(context: ToolContext) -> None:
    with pytest.raises(FileFailed, match=r"has 3 line\(s\); start_line is 9"):
        read_file(context, "README.md", 9)


def test_a_file_without_permission_is_refused(root: Path, context: ToolContext) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (root / "README.md").chmod(0)

    with pytest.raises(FileFailed, match="permission denied"):
        read_file(context, "README.md")


TOOLS_BY_PATH: list[Callable[[ToolContext, str], Any]] = [
    list_dir,
    read_file,
    lambda context, path: search_code(context, "secret", path),
    lambda context, path: write_file(context, path, "overwritten"),
]


def with_links(root: Path) -> None:
    (root / "up").symlink_to("..")
    (root / "out").symlink_to(root.parent / "outside")
    (root / "file").symlink_to(root.parent / "secret.txt")
    (root / "src" / "up").symlink_to("../..")


parts = st.sampled_from(["..", ".", "", "up", "out", "file", "src", "secret.txt", "outside", "root", "/", "~"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(path=st.lists(parts, max_size=6).map("/".join) | st.text(max_size=20), position=st.integers(0, 3))
def test_no_path_leads_out_of_the_root(path: str, position: int, root: Path, context: ToolContext) -> None:
    if not (root / "up").is_symlink():
        with_links(root)
    answer = ""

    try:
        answer = TOOLS_BY_PATH[position](context, path)
    except (PathRefused, FileFailed) as refused:
        assert str(root.parent) not in str(refused)  # noqa: PT017 - whether it is refused is not what is tested

    assert SECRET not in answer
    assert "only-outside" not in answer
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert sorted(os.listdir(root.parent)) == ["only-outside", "outside", "root", "secret.txt"]
    assert sorted(os.listdir(root.parent / "outside")) == ["only-outside", "secret.txt"]


@pytest.mark.real_time
def test_a_folder_swapped_for_a_link_while_it_is_read_leads_nowhere(root: Path, context: ToolContext) -> None:
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_text("harmless")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "swap").rename(root / "real")
            (root / "swap").symlink_to(root.parent / "outside")
            (root / "swap").unlink()
            (root / "real").rename(root / "swap")

    thread = threading.Thread(target=swap)
    thread.start()
    answers: set[str] = set()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        for function in (lambda: read_file(context, "swap/secret.txt"), lambda: search_code(context, "e", "swap")):
            try:
                answers.add(function())
            except FileFailed as refused:
                answers.add(refused.reason)
    stop.set()
    thread.join()

    assert "1: harmless" in answers
    assert not any(SECRET in answer for answer in answers)


def test_matches_are_found_with_path_and_line(context: ToolContext) -> None:
    assert search_code(context, r"def \w+\(") == "src/a.py:3: def main():\nsrc/deep/b.py:1: def Main(x): ..."
    assert search_code(context, "main(", literal=True) == "src/a.py:3: def main():"
    assert search_code(context, "MAIN(", literal=True, ignore_case=True).count("\n") == 1
    assert search_code(context, "MAIN", "src/deep", ignore_case=True) == "src/deep/b.py:1: def Main(x): ..."
    assert search_code(context, "e", glob="*.md") == "README.md:1: # Title\nREADME.md:2: Text é"
    assert search_code(context, "Main", glob="src/*/b.py") == "src/deep/b.py:1: def Main(x): ..."
    assert search_code(context, "nothing like it") == "no match in 3 file(s)"


def test_a_search_leaves_out_what_is_not_text_and_says_how_much(root: Path, context: ToolContext) -> None:
    for folder in (".git", "node_modules", ".venv", "__pycache__", ".geartrain"):
        (root / folder).mkdir()
        (root / folder / "x").write_text("def hidden")
    (root / "binary").write_bytes(b"def \0")
    (root / "large").write_bytes(b"def " * 600_000)
    (root / "link.py").symlink_to("src/a.py")
    os.mkfifo(root / "pipe")

    assert search_code(context, "def") == (
        "src/a.py:3: def main():\n"
        "src/deep/b.py:1: def Main(x): ...\n"
        "[skipped: 1 binary file(s)]\n"
        "[skipped: 1 file(s) of more than 2,097,152 bytes]"
    )


def test_a_search_stops_at_its_number_of_matches_and_says_so(context: ToolContext) -> None:
    assert search_code(context, "def", max_matches=1) == (
        "src/a.py:3: def main():\n[stopped: there are more than these 1 matches; narrow the search]"
    )
    assert "stopped" not in search_code(context, "def", max_matches=2)


def test_of_too_many_matches_every_file_shows_some_before_one_shows_many(root: Path, context: ToolContext) -> None:
    for name in "abcd":
        (root / f"{name}.txt").write_text("needle\n" * 5)

    shown = [line.partition(" ")[0] for line in search_code(context, "needle", max_matches=6).split("\n")]

    assert shown == ["a.txt:1:", "a.txt:2:", "b.txt:1:", "b.txt:2:", "c.txt:1:", "d.txt:1:", "[stopped:"]


def test_with_more_files_than_room_matches_come_from_all_over_the_tree(root: Path, context: ToolContext) -> None:
    for number in range(10, 20):
        (root / f"{number}.txt").write_text("needle\n")

    shown = [line.partition(":")[0] for line in search_code(context, "needle", max_matches=5).split("\n")]

    assert shown == ["10.txt", "12.txt", "14.txt", "16.txt", "18.txt", "[stopped"]


def test_a_search_passes_over_the_caches_of_tools(root: Path, context: ToolContext) -> None:
    for folder in (".hypothesis", ".pytest_cache", ".mypy_cache", ".tox"):
        (root / folder).mkdir()
        (root / folder / "x").write_text("needle")

    assert search_code(context, "needle") == "no match in 3 file(s)"


def test_a_search_shows_no_more_than_fits_the_context(root: Path, context: ToolContext) -> None:
    (root / "many").write_text(("needle " + "x" * 500 + "\n") * 1_000)

    text = search_code(context, "needle", max_matches=1_000)

    assert len(text.encode()) < 15_200
    assert "[stopped: there are more than these" in text


def test_of_a_long_line_only_the_start_is_searched_and_that_is_said(root: Path, context: ToolContext) -> None:
    """IN-6."""
    (root / "wide").write_text("a" * 1_999_000 + "needle")

    assert search_code(context, "needle") == (
        "no match in 4 file(s)\n[of 1 long line(s) only 2,000 characters were searched]"
    )


def test_a_search_stops_when_its_time_is_over(root: Path) -> None:
    ticks = iter(range(1_000))
    search = _search.Search(str(root), lambda _line: True, "*", 100, 10_000, now=lambda: float(next(ticks) * 6))

    search.run(".")

    assert search.stopped == "10 seconds are over"
    assert len(search.found) == 2


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("FILES_MAX", 1, "1 files were searched"),
        ("BYTES_MAX", 10, "10 bytes were searched"),
        ("ENTRIES_MAX", 1, "a folder has more than 1 entries"),
    ],
)
def test_a_search_stops_at_each_of_its_limits(
    name: str, value: int, reason: str, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_search, name, value)

    assert f"[stopped: {reason}; narrow the search]" in search_code(context, "nothing like it")


def test_what_disappears_during_a_search_is_left_out_and_counted(root: Path) -> None:
    (root / "src" / "z.py").touch()

    def matches(_line: str) -> bool:
        (root / "src" / "z.py").unlink(missing_ok=True)
        shutil.rmtree(root / "src" / "deep", ignore_errors=True)
        return True

    search = _search.Search(str(root), matches, "*.py", 100, 10_000)
    search.run("src")

    assert search.skipped_failed == 2
    assert "src/deep" not in search.text()


def test_an_entry_that_is_gone_by_now_is_neither_file_nor_folder() -> None:
    class Gone:
        name = "gone"

        def is_symlink(self) -> bool:
            raise FileNotFoundError

    assert _search._entry(Gone()) == _search.Entry("gone", "other")  # type: ignore[arg-type]


def test_a_line_too_far_into_a_huge_file_is_refused(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "huge").write_text("x\n" * 100)
    monkeypatch.setattr(_files, "SCANNED_BYTES_MAX", 50)

    assert read_file(context, "huge", 3, 1).startswith("3: x\n")
    with pytest.raises(FileFailed, match="line 30 is not within its first 50 bytes"):
        read_file(context, "huge", 30)


def test_a_tree_that_is_too_deep_is_searched_in_part(root: Path, context: ToolContext) -> None:
    (root / "/".join(["d"] * 70)).mkdir(parents=True)

    assert "[skipped: 1 file(s) or folder(s) that could not be opened]" in search_code(context, "nothing like it")


def test_a_search_in_what_is_no_folder_is_refused(context: ToolContext) -> None:
    with pytest.raises(FileFailed, match="no such file or folder"):
        search_code(context, "x", "missing")
    with pytest.raises(FileFailed, match="part of it is a file"):
        search_code(context, "x", "README.md")
    with pytest.raises(PatternRefused):
        search_code(context, r"(a)\1")


def test_a_written_file_has_the_content_and_nothing_is_left_beside_it(root: Path, context: ToolContext) -> None:
    assert write_file(context, "new/folder/file.txt", "é\r\n") == "wrote 4 bytes to new/folder/file.txt"

    assert (root / "new/folder/file.txt").read_bytes() == "é\r\n".encode()
    assert os.listdir(root / "new/folder") == ["file.txt"]


def test_a_replaced_file_keeps_its_permissions(root: Path, context: ToolContext) -> None:
    (root / "README.md").chmod(0o640)

    write_file(context, "README.md", "new")

    assert (root / "README.md").read_text() == "new"
    assert stat.S_IMODE((root / "README.md").stat().st_mode) == 0o640


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_file_as_it_was(
    failing: str, root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)

    with pytest.raises(FileFailed, match="the disk is full"):
        write_file(context, "src/a.py", "new")

    assert (root / "src/a.py").read_text().startswith("import os")
    assert sorted(os.listdir(root / "src")) == ["a.py", "deep"]


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("src", "x", "is not a regular file"),
        ("link", "x", "is not a regular file"),
        ("pipe", "x", "is not a regular file"),
        ("README.md/x", "x", "part of it is a file"),
        ("a", "\ud800", "the content is not valid text"),
        ("a", "é" * 524_289, "the content has 1,048,578 bytes, at most 1,048,576 are written"),
    ],
)
def test_what_cannot_be_written_is_refused(
    path: str, content: str, reason: str, root: Path, context: ToolContext
) -> None:
    (root / "link").symlink_to(root.parent / "secret.txt")
    os.mkfifo(root / "pipe")

    with pytest.raises(FileFailed, match=reason):
        write_file(context, path, content)

    assert (root.parent / "secret.txt").read_text() == SECRET
    assert sorted(os.listdir(root)) == ["README.md", "link", "pipe", "src"]


async def test_verify_tells_whether_a_file_was_written(root: Path, context: ToolContext) -> None:
    threads = ThreadPool(1)
    arguments = write_file.decode('{"path": "a.txt", "content": "new"}')

    async def asked() -> Any:
        return await verify(write_file, arguments, context, limits=Limits(), threads=threads)

    before = await asked()
    (root / "a.txt").write_text("longer")
    other_size = await asked()
    (root / "a.txt").write_text("old")
    same_size = await asked()
    outcome = await invoke(write_file, arguments, context, limits=Limits(), threads=threads)
    after = await asked()
    threads.close()

    assert [before, other_size, same_size] == [NotDone()] * 3
    assert after == Done("wrote 3 bytes to a.txt") == Done(outcome.text)


@pytest.mark.parametrize("tool", file_tools, ids=lambda tool: tool.name)
async def test_a_run_without_a_root_gets_an_error_that_says_what_to_do(tool: Tool) -> None:
    threads = ThreadPool(1)
    required = {"read_file": {"path": "a"}, "search_code": {"pattern": "a"}, "write_file": {"path": "a", "content": ""}}

    outcome = await invoke(tool, required.get(tool.name, {}), ToolContext(), limits=Limits(), threads=threads)
    threads.close()

    assert outcome.status is ResultStatus.ERROR
    assert "this run has no root folder; start it with context={'root'" in outcome.text


def test_a_root_that_is_gone_is_told_without_its_path(root: Path) -> None:
    context = ToolContext(context={"root": str(root / "gone")})

    with pytest.raises(FileFailed, match=r"'\.': no such file or folder"):
        read_file(context, "a/b")


def test_the_file_tools_read_or_are_idempotent_writes() -> None:
    assert [(tool.name, tool.read_only, tool.idempotent) for tool in file_tools] == [
        ("list_dir", True, False),
        ("read_file", True, False),
        ("search_code", True, False),
        ("write_file", False, True),
    ]
    assert all(tool.isolation == "thread" and tool.description for tool in file_tools)
    assert all(
        "description" in schema for tool in file_tools for schema in tool.spec().parameters["properties"].values()
    )

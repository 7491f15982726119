"""Objects are compiled again when, and only when, something they are made of changed."""

import os

import pytest

from build_tools import objects
from build_tools.errors import BuildError
from build_tools.objects import Object


@pytest.fixture
def one(tmp_path):
    """An object of one source that includes one header."""
    (tmp_path / "a header.h").write_text("inline int Two() { return 2; }\n")
    source = tmp_path / "one.cc"
    source.write_text('#include "a header.h"\nint Four() { return Two() + Two(); }\n')
    return Object(("g++", "-std=c++17"), source, tmp_path / "build" / "core" / "one.o")


def touch_later(path, made):
    later = made.stat().st_mtime + 5
    os.utime(path, (later, later))


def test_a_second_build_compiles_nothing(one, capfd):
    assert objects.compile_all([one]) == [one.output]
    capfd.readouterr()
    objects.compile_all([one])
    assert "compiling" not in capfd.readouterr().out


@pytest.mark.parametrize("changed", ["one.cc", "a header.h"])
def test_a_changed_source_or_header_makes_the_object_stale(one, changed):
    objects.compile_all([one])
    assert objects.is_fresh(one)
    touch_later(one.source.with_name(changed), one.output)
    assert not objects.is_fresh(one)


def test_a_source_edited_while_it_is_compiled_leaves_a_stale_object(one, monkeypatch):
    def compile_and_edit(command, what):
        run(command, what)
        one.source.touch()

    run = objects.run
    monkeypatch.setattr(objects, "run", compile_and_edit)
    objects.compile_all([one])
    assert not objects.is_fresh(one)


def test_a_removed_header_makes_the_object_stale(one):
    objects.compile_all([one])
    one.source.with_name("a header.h").unlink()
    assert not objects.is_fresh(one)


def test_other_flags_make_the_object_stale(one):
    objects.compile_all([one])
    assert not objects.is_fresh(Object(("g++", "-std=c++17", "-O1"), one.source, one.output))


def test_a_source_that_does_not_compile_is_an_error_and_leaves_no_fresh_object(one, capfd):
    objects.compile_all([one])
    one.source.write_text("int Four() { return four; }\n")
    touch_later(one.source, one.output)
    with pytest.raises(BuildError, match=r"Compiling .*one\.cc failed"):
        objects.compile_all([one])
    assert "was not declared" in capfd.readouterr().err
    assert not objects.is_fresh(one)

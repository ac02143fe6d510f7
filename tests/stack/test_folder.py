"""The stack's data folder: state, lock, cluster id, logs."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

import pytest

from stack import folder as folder_module
from stack.errors import StackError
from stack.folder import BrokerState, MetadataStoreKind, StackFolder, StackState, bootstrap
from stack.processes import ProcessIdentity, identify


def made_state(broker_process: ProcessIdentity) -> StackState:
    brokers = (BrokerState(7, broker_process, 9092, 10092),)
    return StackState(ProcessIdentity(1, "x"), "cluster", 1_700_000_000_000, brokers)


@pytest.fixture
def folder(tmp_path: Path) -> StackFolder:
    made = StackFolder(tmp_path / "data")
    made.prepare()
    return made


def test_state_is_read_as_it_was_written_and_can_be_removed(folder: StackFolder) -> None:
    assert folder.read_state() is None
    state = made_state(ProcessIdentity(2, "y"))
    folder.write_state(state)
    assert folder.read_state() == state
    folder.remove_state()
    assert folder.read_state() is None
    folder.remove_state()


def test_only_living_brokers_count(folder: StackFolder) -> None:
    me = identify(os.getpid())
    assert me is not None
    assert bootstrap(made_state(me).living()) == "127.0.0.1:9092"
    assert made_state(ProcessIdentity(me.pid, "earlier")).living() == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_state_file_is_named(folder: StackFolder, text: str) -> None:
    (folder.path / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"(?s)stack\.json is damaged.*Delete it"):
        folder.read_state()


def test_one_lock_at_a_time(folder: StackFolder) -> None:
    assert not folder.is_locked()
    descriptor = folder.lock()
    assert descriptor is not None
    assert folder.lock() is None
    assert folder.is_locked()
    os.close(descriptor)
    assert not folder.is_locked()


def test_the_cluster_id_is_made_once_in_kafkas_form(folder: StackFolder) -> None:
    made = folder.cluster_id()
    assert len(made) == 22
    assert StackFolder(folder.path).cluster_id() == made


def test_a_cluster_id_never_looks_like_an_option(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashed, plain = uuid.UUID(bytes=b"\xf8" * 16), uuid.UUID(bytes=b"\x01" * 16)
    monkeypatch.setattr(uuid, "uuid4", iter([dashed, plain]).__next__)
    assert folder.cluster_id() == "AQEBAQEBAQEBAQEBAQEBAQ"


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="Cannot use"):
        StackFolder(tmp_path / "file" / "data").prepare()


def test_an_overlong_log_is_put_aside(folder: StackFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "LOG_BYTES_MAX", 10)
    path = folder.log_file("broker-1")
    for size, aside in ((10, False), (11, True)):
        path.write_bytes(b"x" * size)
        os.close(folder.open_log("broker-1"))
        assert path.with_suffix(".log.1").exists() == aside
    assert path.stat().st_size == 0


def test_logs_are_for_their_owner_alone(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mails of a stack without a mail server are in them.
    monkeypatch.setattr(folder_module, "LOG_BYTES_MAX", 10)
    path = folder.log_file("control-plane")
    os.close(folder.open_log("control-plane"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # One that an earlier version has made, and that is put aside.
    for size in (10, 11):
        path.write_bytes(b"x" * size)
        path.chmod(0o644)
        os.close(folder.open_log("control-plane"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.with_suffix(".log.1").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "elsewhere", "\N{SUPERSCRIPT TWO}"])
def test_a_folder_that_does_not_say_where_its_metadata_is_is_refused(
    folder: StackFolder, text: str
) -> None:
    (folder.path / "metadata-store").write_text(text)
    with pytest.raises(StackError, match=r"(?s)metadata-store is damaged.*Write"):
        folder.store_kind()


@pytest.mark.parametrize("text", ["", "\n", "two words"])
def test_a_damaged_cluster_id_is_not_made_anew(folder: StackFolder, text: str) -> None:
    (folder.path / "cluster-id").write_text(text)
    with pytest.raises(StackError, match=r"(?s)cluster-id is damaged.*metadata-image\.json"):
        folder.cluster_id()
    assert (folder.path / "cluster-id").read_text() == text


def test_a_single_broker_is_one_from_its_first_data_on(folder: StackFolder) -> None:
    folder.write_store_kind(MetadataStoreKind.LOCAL)
    assert folder.store_kind() is None
    folder.broker_data(1).mkdir()
    assert folder.store_kind() is MetadataStoreKind.LOCAL


@pytest.mark.parametrize("kind", [MetadataStoreKind.POSTGRES, MetadataStoreKind.EXTERNAL])
def test_a_cell_is_one_whatever_became_of_its_brokers(
    folder: StackFolder, kind: MetadataStoreKind
) -> None:
    folder.write_store_kind(kind)
    assert folder.store_kind() is kind


def test_what_is_written_is_on_disk_before_it_takes_the_old_one_s_place(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen, sync = folder.path / "kept", list[tuple[int, str]](), os.fsync
    path.write_text("old")
    # Who has it open, or linked, goes on seeing it as a whole.
    (folder.path / "reader").hardlink_to(path)

    def note(descriptor: int) -> None:
        sync(descriptor)
        seen.append((os.fstat(descriptor).st_size, path.read_text()))

    monkeypatch.setattr(os, "fsync", note)
    folder.write(path, "newer")
    assert seen == [(len("newer"), "old")]
    assert path.read_text() == "newer"
    assert (folder.path / "reader").read_text() == "old"


def test_brokers_are_found_in_the_order_of_their_ids(folder: StackFolder) -> None:
    for name in ("broker-10", "broker-2", "broker-x", "logs"):
        (folder.path / name).mkdir(exist_ok=True)
    assert folder.broker_ids() == [2, 10]

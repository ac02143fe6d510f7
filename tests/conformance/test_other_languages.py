"""Java, franz-go, sarama, kafkajs and librdkafka in C: whole programs against one broker."""

from __future__ import annotations

from data_plane.cell.features import NEWEST_LEVEL
from tests.conformance import programs


def test_java_client(bootstrap: str) -> None:
    passed = programs.run_cases(programs.java_command(), bootstrap)
    assert len(passed) == 25, passed


def test_franz_go(bootstrap: str) -> None:
    passed = programs.run_cases(programs.go_command(), bootstrap)
    assert len(passed) == 16, passed


def test_sarama_and_features(bootstrap: str) -> None:
    command = programs.sarama_command("features")
    passed = programs.run_cases(command, bootstrap, str(NEWEST_LEVEL))
    assert len(passed) == 5, passed


def test_kafkajs(bootstrap: str) -> None:
    passed = programs.run_cases(programs.node_command(), bootstrap)
    assert len(passed) == 12, passed


def test_librdkafka_in_c(bootstrap: str) -> None:
    program = programs.c_programs() / "conformance"
    passed = programs.run_cases([str(program)], bootstrap)
    assert len(passed) == 13, passed

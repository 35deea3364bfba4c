"""The metrics of the programs are described."""

from tests.pages.metrics import registries, rows


def test_each_metric_has_a_meaning_and_belongs_to_us() -> None:
    """By the prefix of its name: ours, AgentaFlow's, or kube-scheduler's."""
    found = {row[0]: row for registry in registries().values() for row in rows(registry)}

    assert len(found) >= 35
    for name, _, _, meaning in found.values():
        assert name.startswith(("gpu_scheduler_", "agentaflow_", "scheduler_")), name
        assert len(meaning.split()) > 2, name

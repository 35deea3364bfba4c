"""The page of metrics is what the programs serve."""

from tests.metrics_page import PAGE, registries, rows, with_tables


def test_the_page_has_the_metrics_as_they_are() -> None:
    """`make fmt` writes its tables."""
    page = PAGE.read_text(encoding="utf-8")

    assert with_tables(page) == page


def test_each_metric_has_a_meaning_and_belongs_to_us() -> None:
    """By the prefix of its name: ours, AgentaFlow's, or kube-scheduler's."""
    found = {row[0]: row for registry in registries().values() for row in rows(registry)}

    assert len(found) >= 35
    for name, _, _, meaning in found.values():
        assert name.startswith(("gpu_scheduler_", "agentaflow_", "scheduler_")), name
        assert len(meaning.split()) > 2, name

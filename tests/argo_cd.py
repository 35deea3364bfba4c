"""The files of argocd/ as data, and the Applications that Argo CD's ApplicationSet controller makes of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.objects import Object

FOLDER: Final = Path(__file__).resolve().parents[1] / "argocd"
PROJECT: Final = "gpu-scheduler-project.yaml"
COMPLETE: Final = "gpu-scheduler-complete-applicationset.yaml"
ONE_CLUSTER: Final = "applicationset.yaml"
SECRET: Final = "local-cluster-secret.yaml"  # noqa: S105 - the name of a file
FIELD: Final = re.compile(r"\{\{ \.([A-Za-z.]+) \}\}")


def read(name: str) -> Object:
    """Return the object of a file."""
    found: Object = yaml.safe_load((FOLDER / name).read_text())
    return found


def applications(name: str) -> list[Object]:
    """Return the Applications of an ApplicationSet where the only registered cluster is that of the Secret."""
    return list(_generated(read(name)["spec"]))


def _generated(spec: Object) -> Iterator[Object]:
    cluster = read(SECRET)
    for generator in spec["generators"]:
        ((kind, given),) = generator.items()
        template = _merged(spec["template"], given.get("template", {}))
        if kind == "list":
            parameters = given["elements"]
        else:
            wanted, labels = given["selector"]["matchLabels"], cluster["metadata"]["labels"]
            data = cluster["stringData"]
            one = {"nameNormalized": data["name"], "server": data["server"], "values": given["values"]}
            parameters = [one] if wanted.items() <= labels.items() else []
        for each in parameters:
            yield {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", **_filled(template, each)}


def _merged(outer: Object, inner: Object) -> Object:
    """Return a template with what is not empty in the generator's own template."""
    found = dict(outer)
    for key, value in inner.items():
        found[key] = _merged(found.get(key, {}), value) if isinstance(value, dict) else value or found[key]
    return found


def _filled(template: Any, parameters: Object) -> Any:
    """Return a template with its fields filled in. Our files use no other actions of Go's templates."""
    if isinstance(template, dict):
        return {key: _filled(value, parameters) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(each, parameters) for each in template]
    if not isinstance(template, str):
        return template
    text = FIELD.sub(lambda match: _field(parameters, match[1]), template)
    assert "{{" not in text, text
    return text


def _field(parameters: Object, path: str) -> str:
    found: Any = parameters
    for key in path.split("."):
        found = found[key]
    assert isinstance(found, str), path
    return found

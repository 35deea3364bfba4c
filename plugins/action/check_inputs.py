"""Checks every input of a play before anything is changed: values, names and tags, with a sentence for each problem.

The roles' argument specifications say what a value must be, and Ansible's own validator reads them. What they cannot
say, the range of a number and the form of a text, stands here. The scheduler's own parser reads the limits.
"""

from __future__ import annotations

import difflib
import importlib
import ipaddress
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import durationpy
import yaml
from ansible import context  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.errors import AnsibleError  # type: ignore[import-untyped]  # likewise
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # type: ignore[import-untyped]  # likewise
from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]  # likewise
from ansible.utils.vars import load_extra_vars  # type: ignore[import-untyped]  # likewise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

Json = dict[str, Any]

CHECKOUT: Final = Path(__file__).resolve().parents[2]
# Role preflight has the forms of names and images, and the rules of pod options. Ansible's plugins are no packages.
sys.path.append(str(CHECKOUT / "roles" / "preflight" / "filter_plugins"))
preflight: Final = importlib.import_module("preflight")
pod_options: Final = importlib.import_module("pod_options")

OF_MOLECULE: Final = frozenset({"notest", "molecule-notest", "molecule-idempotence-notest"})
"""Tags that Molecule skips in every play that it runs."""
SPECIAL_TAGS: Final = frozenset({"all", "tagged", "untagged", "always", "never"}) | OF_MOLECULE
"""Tags that mean something though no task has them; the others are Ansible's own."""
TYPES: Final[Json] = {"str": str, "path": str, "list": list, "dict": dict}
"""What the validator also makes of other types, but the roles use as it is given."""
MOST: Final = 2**31 - 1
"""Kubernetes' own bound of most numbers."""
LONGEST_INTERVAL: Final = 20
"""Seconds; the scheduler's settings have the reason."""
LONGEST_REPORT: Final = 86400
"""Seconds; the check workload refuses more."""
SHOWN: Final = 100
"""Most characters of a value that a sentence quotes."""
REFERENCE: Final = re.compile(r"\{\{ (\w+)(?: \| default\('\w*'\))? \}\}")
EXPRESSION: Final = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
SIMPLE: Final = r"[\w./:-]{1,40}"
"""Values that the command line takes without quotation marks."""
SCHEDULE: Final = r"@(hourly|daily|midnight|weekly|monthly|yearly|annually)|([0-9A-Za-z*/,?-]+ +){4}[0-9A-Za-z*/,?-]+"

RANGES: Final = (
    (r"kind_cluster_api_port", 0, 65535),
    (r"\w+_ports?", 1, 65535),
    (r"\w+_utilization_goal", 0, 100),
    (r"webhook_timeout", 1, 30),
    (r"fix_nodes_replicas", 0, 9999),
    (r"certificates_\w+_days", 1, 3650),
    (r"node_image_max_age_days|preflight_\w+_mib", 0, MOST),
    (r"\w+", 1, MOST),
)
"""Names → least and most. The first row whose expression is the whole name counts."""


class Form(NamedTuple):
    """What texts must be, beside their type."""

    names: str
    """An expression that is the whole name of the input, a text or a list of texts."""
    fits: Callable[[str], bool]
    rule: str
    example: str


def pattern(expression: str) -> Callable[[str], bool]:
    """Return a function that returns whether a text is of this form."""
    return lambda text: re.fullmatch(expression, text, re.DOTALL) is not None


def seconds(text: str) -> float:
    """Return the seconds of a Go duration; 0 if it is none."""
    try:
        return float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, ValueError, OverflowError):
        return 0


def is_network(text: str) -> bool:
    """Return whether the text is an address with a prefix, in CIDR notation."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


FORMS: Final = (
    Form(r"\w+_namespaces?|certificates_service", pattern(preflight.LABEL), preflight.LABEL_RULE, "gpu-scheduler"),
    Form(
        r"\w+_image|images_base_images|node_image_\w+_(pulled|built)",
        pattern(preflight.IMAGE),
        "an image with a tag or a digest of 64 hexadecimal digits",
        "registry.example.com/team/gpu-scheduler:1.0",
    ),
    Form(
        r"(\w+_)?scheduler_name|monitor_runtime_class|check_image_pull_secrets|evidence_log_nodes",
        pattern(pod_options.SUBDOMAIN),
        "lower-case letters, digits, hyphens and dots, a letter or digit at both ends",
        "nvidia",
    ),
    Form(
        r"scheduler_interval",
        lambda text: 0 < seconds(text) <= LONGEST_INTERVAL,
        f"a Go duration of at most {LONGEST_INTERVAL}s",
        "5s",
    ),
    Form(
        r"check_interval",
        lambda text: pattern(r"[0-9]+(\.[0-9]+)?s?")(text) and 0 < float(text.removesuffix("s")) <= LONGEST_REPORT,
        f"seconds above 0 and at most {LONGEST_REPORT}",
        "10s",
    ),
    Form(r"\w+_interval", lambda text: seconds(text) > 0, "a positive Go duration", "15s"),
    Form(r"\w+_cidrs", is_network, "an address in CIDR notation", "10.0.0.0/16"),
    Form(r"certificates_renew_schedule", pattern(SCHEDULE), "the five fields of a CronJob's schedule", "37 3 * * *"),
    Form(r"\w+_url", pattern(r"https?://\S+"), "an address of http or https", "https://git.example.com/docs"),
    Form(
        r"webhook_client_ca",
        pattern(r".*-----BEGIN CERTIFICATE-----.*"),
        "certificates in PEM",
        "the text of a file that begins with -----BEGIN CERTIFICATE-----",
    ),
    Form(
        r"\w+_(dir|folder|checkout|file|record|kubeconfig)|evidence_dir",
        pattern(r"/[^:\n]*"),
        "one absolute path without a colon",
        "/srv/gpu-scheduler",
    ),
)
"""The first row whose expression is the whole name counts."""


EXAMPLES: Final = (
    ("check_tolerations", "[{key: nvidia.com/gpu, operator: Exists}]"),
    ("monitor_simulated_inventory", "{node1: [{count: 4, model: A100-40GB, memoryTotalMiB: 40960}]}"),
    (r"\w+_users", "[system:serviceaccount:ml:gpu-scheduler]"),
    ("scheduler_limits", "'team-a: devices=8 priority=1000'"),
    (r"\w+_pod_options", "{image_pull_secrets: [registry]}"),
    (r"\w+_labels", "{release: prometheus}"),
    (r"\w+_removals", "[monitor]"),
    (r"\w+", "text"),
)
"""Of inputs that are empty and have no form: names → a valid value. The first row counts."""


def shipped(path: Path) -> Any:
    """Return a YAML file of the checkout as it stands there."""
    # libyaml is ten times as quick, and Ansible's own loader copies what it has loaded.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - a safe loader


def specifications() -> dict[str, Json]:
    """Return each input of each role → its argument specification. Those of type raw are checked by their role."""
    return {
        name: option
        for path in sorted(CHECKOUT.glob("roles/*/meta/argument_specs.yml"))
        for name, option in shipped(path)["argument_specs"]["main"]["options"].items()
        if option["type"] != "raw"
    }


def of_play(variables: Mapping[str, Any]) -> dict[str, Json]:
    """Return each variable of a play that a user may give → an argument specification, made from its default."""
    types = {bool: "bool", int: "int", str: "str"}
    return {
        name: {"type": next(word for kind, word in types.items() if isinstance(default, kind)), "default": default}
        for name, default in variables.items()
        if not name.startswith("_") and isinstance(default, (*types,))
    }


def shown(value: object) -> str:
    """Return a value as a sentence quotes it."""
    text = str(value)
    return f"'{text if len(text) <= SHOWN else text[:SHOWN] + '…'}'"


def joined(words: Iterable[object]) -> str:
    """Return "a, b or c"."""
    *first, last = map(str, words)
    return f"{', '.join(first)} or {last}" if first else last


def form_of(name: str) -> Form | None:
    """Return the form of an input's texts."""
    return next((form for form in FORMS if re.fullmatch(form.names, name)), None)


def example_of(name: str, option: Json) -> str:
    """Return a value that is valid: the default, or that of the form."""
    default, form = option.get("default"), form_of(name)
    if default not in ("", [], {}, None) and "{{" not in str(default):
        if isinstance(default, list | dict):
            return str(yaml.safe_dump(default, default_flow_style=True, width=MOST)).strip()
        return str(default)
    if form:
        return f"[{form.example}]" if option["type"] == "list" else form.example
    return next(example for names, example in EXAMPLES if re.fullmatch(names, name))


def value_problems(name: str, option: Json, value: Any) -> Iterator[str]:
    """Yield what is wrong with the value of one input. `option` is the input's argument specification."""
    kind = option["type"]
    example = f"(example: {example_of(name, option)})"
    errors = ArgumentSpecValidator({name: option}).validate({name: value}).error_messages
    if "choices" in option:
        if errors or not isinstance(value, str):
            yield f"{name} is {shown(value)}: set it to {joined(option['choices'])}."
    elif kind == "bool":
        if errors or value is None:
            yield f"{name} is {shown(value)}: set it to true or false."
    elif kind == "int":
        yield from _number_problems(name, value, errors, example)
    elif errors or not isinstance(value, TYPES[kind]):
        noun = {"list": "a list", "dict": "a dictionary"}.get(kind, "text")
        yield f"{name} is {shown(value)}: it must be {noun} {example}."
    elif kind == "list" and option.get("elements") == "int":
        for each in value:
            yield from _number_problems(name, each, [], example)
    elif kind == "dict":
        yield from _dictionary_problems(name, value)
    else:
        yield from _text_problems(name, option, value, example)


def _number_problems(name: str, value: Any, errors: object, example: str) -> Iterator[str]:
    least, most = next((low, high) for names, low, high in RANGES if re.fullmatch(names, name))
    digits = re.fullmatch(r"-?[0-9]{1,20}", str(value))
    if errors or not digits or not least <= int(digits[0]) <= most:
        yield f"{name} is {shown(value)}: it must be a whole number from {least} to {most} {example}."


def _text_problems(name: str, option: Json, value: Any, example: str) -> Iterator[str]:
    if name == "scheduler_limits":
        yield from (f"{name}: {fault}." for fault in _limits_faults(value))
        return
    form = form_of(name)
    is_list = isinstance(value, list)
    for each in value if is_list else [value]:
        verb = "has" if is_list else "is"
        if each == "" and (is_list or option.get("default") != ""):
            yield f"{name} {verb} '': it must not be empty {example}."
        elif not isinstance(each, str) and option.get("elements", "str") == "str":
            yield f"{name} {verb} {shown(each)}: it must be text, in quotation marks {example}."
        elif form and each != "" and not form.fits(each):
            yield f"{name} {verb} {shown(each)}: it must be {form.rule} {example}."


def _dictionary_problems(name: str, value: Json) -> Iterator[str]:
    if name.endswith("_pod_options"):
        yield from (
            problem.replace("pod_options", name, 1) for problem in pod_options.pod_options({"pod_options": value})
        )
    if name.endswith("_labels"):
        for label, text in value.items():
            if not isinstance(text, str) or not pattern(pod_options.LABEL_VALUE)(text):
                yield (
                    f"{name} has {label}: {text}: a label's value must be quoted text, up to 63 letters, digits,"
                    ' hyphens, dots and underscores (example: {release: "prometheus"}).'
                )


def _limits_faults(text: str) -> tuple[str, ...]:
    """Return what the scheduler's own parser says."""
    if str(preflight.PAYLOAD) not in sys.path:
        sys.path.append(str(preflight.PAYLOAD))
    faults: tuple[str, ...] = importlib.import_module("gpu_scheduler.core.namespace_limits").parse_limits(text)[1]
    return faults


def known_name(name: str, values: Mapping[str, Any], wiring: Mapping[str, Any]) -> str:
    """Return the variable that the user sets for an input; empty if it has its default, or is computed from others.

    The wiring refers to the user's variables. What it computes is right if these are.
    """
    while name in wiring and values.get(name) == wiring[name]:
        found = REFERENCE.fullmatch(str(wiring[name]))
        if not found:
            return ""
        name = found[1]
    return name if name in values else ""


def checked_values(specs: Mapping[str, Json], values: Mapping[str, Any], wiring: Mapping[str, Any]) -> dict[str, Json]:
    """Return each variable that must be checked → its argument specification."""
    found = {option: known_name(option, values, wiring) for option in specs}
    # An input of the same name has the first word.
    named = {name: specs[name] for name in found.values() if name in specs}
    return {**{name: specs[option] for option, name in found.items() if name}, **named}


def problems_of(
    specs: Mapping[str, Json], values: Mapping[str, Any], wiring: Mapping[str, Any], template: Callable[[Any], Any]
) -> Iterator[str]:
    """Yield what is wrong with the values of these inputs. `template` computes a value."""
    for name, option in checked_values(specs, values, wiring).items():
        try:
            value = template(values[name])
        except AnsibleError as error:
            example = example_of(name, option)
            yield f"{name} is {shown(values[name])}: it cannot be computed, {error} (example: {example})."
        else:
            yield from value_problems(name, option, value)


def days_problems(days: Callable[[str], int]) -> Iterator[str]:
    """Yield what is wrong with days that are valid alone: with these each run would issue anew."""
    renew, serving, ca = (days(f"certificates_{each}_days") for each in ("renew", "serving", "ca"))
    if renew >= serving:
        yield (
            f"certificates_renew_days is '{renew}': it must be less than certificates_serving_days, {serving}, or each"
            " run renews the serving pair (example: 30)."
        )
    elif ca <= serving + renew:
        yield (
            f"certificates_ca_days is '{ca}': it must be more than certificates_serving_days and"
            f" certificates_renew_days together, {serving + renew}, or each run makes a new CA (example: 3650)."
        )


def name_problems(given: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each variable that nothing reads. `given` is what the user set."""
    read = {
        word for value in given.values() for part in EXPRESSION.findall(str(value)) for word in re.findall(r"\w+", part)
    }
    inputs = sorted(name for name in known if not name.startswith("_"))
    for name, value in given.items():
        # Two underscores begin the names of what tasks register: nobody sets these by a slip.
        if name in known or name in read or name.startswith(("ansible_", "__")):
            continue
        near = difflib.get_close_matches(name, inputs, 1)
        advice, example = "docs/reference.md lists all", "-e isolation=dra"
        if near:
            advice = f"the nearest is {near[0]}"
            example = f"-e {near[0]}={value if re.fullmatch(SIMPLE, str(value)) else '…'}"
        said = f"no inventory, role or playbook has such a variable, {advice}"
        yield f"{name} is {shown(value)}: {said} (example: {example})."


def tag_problems(option: str, given: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each tag that no task has. `option` is --tags or --skip-tags."""
    tags = sorted(set(known) - SPECIAL_TAGS)
    for tag in given:
        if tag in tags or tag in SPECIAL_TAGS:
            continue
        if not tags:
            yield f"{option} has '{tag}': this playbook has no tags, so leave {option} out."
            continue
        near = difflib.get_close_matches(tag, tags, 1) or tags[:1]
        yield (
            f"{option} has '{tag}': no task of this playbook has this tag, set it to {joined(tags)}"
            f" (example: {option} {near[0]})."
        )


def subject(sentence: str) -> str:
    """Return the variable that a problem begins with."""
    return re.split(r"[^\w-]", sentence, maxsplit=1)[0]


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """The action as Ansible finds it."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: object = None, task_vars: Json | None = None) -> Json:
        """Return all problems, as a failure."""
        result: Json = super().run(tmp, task_vars)
        values = task_vars or {}
        play = self._task.get_play()
        problems = [*self._task.args["problems"]]
        wrong = {subject(problem) for problem in problems}
        wiring = shipped(CHECKOUT / "inventory" / "wiring.yml")
        specs = specifications() | of_play(play.vars)
        found = problems_of(specs, values, wiring, self._templar.template)
        problems += (problem for problem in found if subject(problem) not in wrong)
        if not any(subject(problem).startswith("certificates_") for problem in problems):
            problems += days_problems(
                lambda name: int(self._templar.template(values.get(name, specs[name]["default"])))
            )
        problems += name_problems(self._given(values), self._known_names())
        known = {tag for block in play.compile() for task in block.get_tasks() for tag in task.tags}
        for option in ("tags", "skip_tags"):
            problems += tag_problems(f"--{option.replace('_', '-')}", context.CLIARGS.get(option) or (), known)
        said = [problem for problem in problems if subject(problem) not in self._task.args.get("unchecked", [])]
        return result | (
            {"failed": True, "msg": ["Nothing was changed. The inputs need a look:", *said]} if said else {}
        )

    def _given(self, values: Json) -> Json:
        """Return what the user may have set: the variables of the command line and of the inventory's folder."""
        files = sorted(Path(values["inventory_dir"]).glob("group_vars/all/*.y*ml"))
        names = {name for path in files for name in self._loader.load_from_file(str(path), "all", unsafe=True) or ()}
        return {**{name: values.get(name) for name in sorted(names)}, **load_extra_vars(self._loader)}

    def _known_names(self) -> set[str]:
        """Return the names that inventories, roles and playbooks have."""
        files = (
            "inventory/wiring.yml",
            "inventory/*/group_vars/all/facts.yml",
            "roles/*/defaults/*.yml",
            "roles/*/vars/**/*.yml",
        )
        texts = (path.read_text(encoding="utf-8") for each in files for path in CHECKOUT.glob(each))
        known = {name for text in texts for name in re.findall(r"^(\w+):", text, re.MULTILINE)}
        plays = (play for path in CHECKOUT.glob("playbooks/*.yml") for play in shipped(path))
        return known.union(*(play.get("vars", {}) for play in plays))

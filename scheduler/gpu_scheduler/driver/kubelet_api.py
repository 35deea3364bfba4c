"""The messages and services of the kubelet's plugin API, as protobuf classes that are made from a table.

Names and numbers are those of Kubernetes 1.36: pluginregistration/v1 and dra/v1 in k8s.io/kubelet, pkg/apis. Nothing is
generated: the table is smaller than generated modules, and no compiler must be installed.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

REGISTRATION: Final = "pluginregistration.Registration"
"""The service by which the kubelet learns of a plugin."""
PLUGIN: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
"""The service that the kubelet calls."""
PLUGIN_TYPE: Final = "DRAPlugin"
PLUGIN_VERSION: Final = "v1.DRAPlugin"
"""That service, as a plugin names it at its registration."""

_ONE: Final = FieldDescriptorProto.LABEL_OPTIONAL
_MANY: Final = FieldDescriptorProto.LABEL_REPEATED
_TEXT: Final = FieldDescriptorProto.TYPE_STRING
_FLAG: Final = FieldDescriptorProto.TYPE_BOOL
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE

_Field = tuple[str, int, int, int, str]
"""Name, number, label, type, and the name of the message if the type is one."""


def _text(name: str, number: int, label: int = _ONE) -> _Field:
    return name, number, label, _TEXT, ""


def _messages(name: str, number: int, message: str) -> _Field:
    return name, number, _MANY, _MESSAGE, message


_PACKAGES: Final[dict[str, dict[str, tuple[_Field, ...]]]] = {
    "pluginregistration": {
        "InfoRequest": (),
        "PluginInfo": (
            _text("type", 1),
            _text("name", 2),
            _text("endpoint", 3),
            _text("supported_versions", 4, _MANY),
        ),
        "RegistrationStatus": (("plugin_registered", 1, _ONE, _FLAG, ""), _text("error", 2)),
        "RegistrationStatusResponse": (),
    },
    "k8s.io.kubelet.pkg.apis.dra.v1": {
        "Claim": (_text("namespace", 1), _text("uid", 2), _text("name", 3)),
        "Device": (
            _text("request_names", 1, _MANY),
            _text("pool_name", 2),
            _text("device_name", 3),
            _text("cdi_device_ids", 4, _MANY),
        ),
        "NodePrepareResourcesRequest": (_messages("claims", 1, "Claim"),),
        "NodePrepareResourceResponse": (_messages("devices", 1, "Device"), _text("error", 2)),
        "NodePrepareResourcesResponse": (_messages("claims", 1, "map of NodePrepareResourceResponse"),),
        "NodeUnprepareResourcesRequest": (_messages("claims", 1, "Claim"),),
        "NodeUnprepareResourceResponse": (_text("error", 1),),
        "NodeUnprepareResourcesResponse": (_messages("claims", 1, "map of NodeUnprepareResourceResponse"),),
    },
}
_MAP: Final = "map of "
"""How a field begins that maps texts to messages. In protobuf it is a list of entries with key and value."""


def _described(package: str, name: str, fields: tuple[_Field, ...]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for field, number, label, kind, of_message in fields:
        type_name = f".{package}.{of_message}" if of_message else None
        value = of_message.removeprefix(_MAP)
        if value != of_message:
            type_name = f".{package}.{name}.{_entry(message, package, field, value)}"
        message.field.add(name=field, number=number, label=label, type=kind, type_name=type_name)
    return message


def _entry(message: DescriptorProto, package: str, field: str, value: str) -> str:
    """Add the message of a map's entries; return its name."""
    entry = message.nested_type.add(name=f"{field.capitalize()}Entry", options=MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, label=_ONE, type=_TEXT)
    entry.field.add(name="value", number=2, label=_ONE, type=_MESSAGE, type_name=f".{package}.{value}")
    return str(entry.name)


def _classes() -> dict[str, Any]:
    """Return the classes of all messages, by the messages' names."""
    pool = DescriptorPool()
    found: dict[str, Any] = {}
    for package, messages in _PACKAGES.items():
        described = [_described(package, name, fields) for name, fields in messages.items()]
        pool.Add(FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3", message_type=described))
        found |= {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
    return found


_made: Final = _classes()

InfoRequest: Final = _made["InfoRequest"]
PluginInfo: Final = _made["PluginInfo"]
RegistrationStatus: Final = _made["RegistrationStatus"]
RegistrationStatusResponse: Final = _made["RegistrationStatusResponse"]
PrepareRequest: Final = _made["NodePrepareResourcesRequest"]
PrepareResponse: Final = _made["NodePrepareResourcesResponse"]
UnprepareRequest: Final = _made["NodeUnprepareResourcesRequest"]
UnprepareResponse: Final = _made["NodeUnprepareResourcesResponse"]

"""The wire contract as the installed package google-cloud-bigtable knows it.

Messages and enums come from the descriptors inside the package. It carries no service descriptors
for Bigtable, so the RPCs are read from its gRPC transports. Two things are put right on the way:

* files are renamed to where the contract has them (google/bigtable/v2/…), and
* the underscore that Python needs behind a field such as `type` is removed.

The session protocol of the official clients (session.proto) is left out: servers answer its four
RPCs with UNIMPLEMENTED, and clients then use the ordinary ones.
"""

import importlib
import re

import proto
from google.protobuf import descriptor_pb2

PROTO_PLUS_MODULES = [
    "google.cloud.bigtable_v2.types",
    "google.cloud.bigtable_admin_v2.types",
]
PLAIN_MODULES = [
    "google.iam.v1.iam_policy_pb2",
    "google.iam.v1.options_pb2",
    "google.iam.v1.policy_pb2",
    "google.longrunning.operations_proto_pb2",
    "google.rpc.error_details_pb2",
    "google.rpc.status_pb2",
    "google.type.date_pb2",
    "google.type.expr_pb2",
]
# Service -> (transport module, the file that declares the service).
TRANSPORTS = {
    "google.bigtable.v2.Bigtable": (
        "google.cloud.bigtable_v2.services.bigtable.transports.grpc",
        "google/bigtable/v2/bigtable.proto",
    ),
    "google.bigtable.admin.v2.BigtableTableAdmin": (
        "google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports.grpc",
        "google/bigtable/admin/v2/bigtable_table_admin.proto",
    ),
    "google.bigtable.admin.v2.BigtableInstanceAdmin": (
        "google.cloud.bigtable_admin_v2.services.bigtable_instance_admin.transports.grpc",
        "google/bigtable/admin/v2/bigtable_instance_admin.proto",
    ),
}
LEFT_OUT = {"google/bigtable/v2/session.proto"}
SERVICES_LEFT_OUT = {"google.iam.v1.IAMPolicy"}

STUB = re.compile(
    r"_channel\.(?P<request>unary|stream)_(?P<reply>unary|stream)\(\s*"
    r'"/(?P<service>[\w.]+)/(?P<method>\w+)",\s*'
    r"request_serializer=(?P<input>[\w.]+)\.(?:serialize|SerializeToString),\s*"
    r"response_deserializer=(?P<output>[\w.]+)\.(?:deserialize|FromString)"
)

_FieldProto = descriptor_pb2.FieldDescriptorProto


def files():
    """Returns path -> FileDescriptorProto, services included, in path order."""
    found = {}
    for name in PROTO_PLUS_MODULES:
        for cls in vars(importlib.import_module(name)).values():
            if isinstance(cls, type) and issubclass(cls, proto.Message):
                descriptor = cls.pb().DESCRIPTOR.file
                found[_path(descriptor.name)] = _file(descriptor)
    for name in PLAIN_MODULES:
        descriptor = importlib.import_module(name).DESCRIPTOR
        found[_path(descriptor.name)] = _file(descriptor)
    for service, (module, path) in TRANSPORTS.items():
        found[path].service.append(_service(service, importlib.import_module(module)))
    return {path: found[path] for path in sorted(found) if path not in LEFT_OUT}


def type_name(field):
    """Returns the type as written in a table: `int64`, `message:a.b.C`, `enum:a.b.D`."""
    kind = _FieldProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.type_name:
        return f"{kind}:{field.type_name.removeprefix('.')}"
    return kind


def oneof_name(message, field):
    """Returns the oneof that the field belongs to; an optional field belongs to none."""
    if field.HasField("oneof_index") and not field.proto3_optional:
        return message.oneof_decl[field.oneof_index].name
    return None


def label(field):
    """Returns single, optional (its presence is visible) or repeated."""
    if field.label == _FieldProto.LABEL_REPEATED:
        return "repeated"
    return "optional" if field.proto3_optional else "single"


def _path(name):
    return re.sub(r"^google/cloud/bigtable_(admin_)?v2/types/", _folder, name)


def _folder(match):
    return "google/bigtable/admin/v2/" if match.group(1) else "google/bigtable/v2/"


def _file(descriptor):
    copy = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(copy)
    kept = [service for service in copy.service
            if f"{copy.package}.{service.name}" not in SERVICES_LEFT_OUT]
    del copy.service[:]
    copy.service.extend(kept)
    for message in copy.message_type:
        _plain_names(message)
    return copy


def _plain_names(message):
    for field in message.field:
        field.name = field.name.removesuffix("_")
    for oneof in message.oneof_decl:
        if not oneof.name.startswith("_"):
            oneof.name = oneof.name.removesuffix("_")
    for nested in message.nested_type:
        _plain_names(nested)


def _service(full_name, module):
    service = descriptor_pb2.ServiceDescriptorProto(name=full_name.rpartition(".")[2])
    with open(module.__file__, encoding="utf-8") as source:
        text = source.read()
    for stub in STUB.finditer(text):
        if stub["service"] != full_name:
            continue
        service.method.add(
            name=stub["method"],
            input_type=_message(module, stub["input"]),
            output_type=_message(module, stub["output"]),
            client_streaming=stub["request"] == "stream",
            server_streaming=stub["reply"] == "stream",
        )
    mentioned = set(re.findall(rf'"/{re.escape(full_name)}/(\w+)"', text))
    read = {method.name for method in service.method}
    assert read and read == mentioned, f"{full_name}: stubs not understood: {mentioned - read}"
    return service


def _message(module, dotted):
    value = module
    for part in dotted.split("."):
        value = getattr(value, part)
    plain = value.pb() if issubclass(value, proto.Message) else value
    return "." + plain.DESCRIPTOR.full_name

"""Writes proto/google/**.proto from the descriptors of an installed google-cloud-bigtable.

When to run it: when a newer release of the package has fields, enums or RPCs that ours lacks
(compare.py lists them). How:

    python3 -m venv venv && venv/bin/pip install google-cloud-bigtable
    venv/bin/python proto/refresh/refresh.py
    UPDATE_GOLDENFILES=1 cargo test -p tepui-proto
    venv/bin/python proto/refresh/compare.py

What it writes is the wire contract and nothing else: names, numbers and types, messages by name,
fields by number. The comments at the head of each file are the ones below.
"""

import pathlib

import upstream

ROOT = pathlib.Path(__file__).resolve().parent.parent / "proto"
WIDTH = 100
HEADS = {
    "google/bigtable/v2/bigtable.proto":
        "The data API: every read and write of rows, one message pair a call.\n"
        "ReadRows answers in cell chunks, so that neither side ever holds a whole row or result.",
    "google/bigtable/v2/data.proto":
        "What the data API speaks of: rows and their sets, mutations, filters, query values.",
    "google/bigtable/v2/feature_flags.proto":
        "What a client says it understands; sent base64-coded in the header bigtable-features.",
    "google/bigtable/v2/peer_info.proto":
        "How a client reached the service; sent in a header.",
    "google/bigtable/v2/request_stats.proto":
        "What a read cost; the last answer of a ReadRows that asked for it carries them.",
    "google/bigtable/v2/response_params.proto":
        "Where an answer came from; sent in a trailer.",
    "google/bigtable/v2/types.proto":
        "The types of values: of aggregate families and of query columns.",
    "google/bigtable/admin/v2/bigtable_table_admin.proto":
        "The table admin API: tables, families, views, backups. Long calls answer an Operation.",
    "google/bigtable/admin/v2/bigtable_instance_admin.proto":
        "The instance admin API: instances, clusters, app profiles, views of the instance.",
    "google/bigtable/admin/v2/common.proto":
        "What both admin APIs share.",
    "google/bigtable/admin/v2/instance.proto":
        "Instances and what belongs to them.",
    "google/bigtable/admin/v2/table.proto":
        "Tables, families and their retention (GC) rules, views, backups.",
    "google/bigtable/admin/v2/types.proto":
        "The types of values; the same on the wire as those of the data API.",
    "google/iam/v1/iam_policy.proto": "Asking for and setting who may do what.",
    "google/iam/v1/options.proto": "How a policy is asked for.",
    "google/iam/v1/policy.proto": "Who may do what.",
    "google/longrunning/operations.proto":
        "Admin calls that take long answer an Operation, which the client polls here.",
    "google/rpc/error_details.proto":
        "What may travel beside a status code; clients act on RetryInfo and ErrorInfo.",
    "google/rpc/status.proto": "An error as a message; MutateRows answers one for each entry.",
    "google/type/date.proto": "A day of the calendar, perhaps only a year or a month of it.",
    "google/type/expr.proto": "The condition of a policy's binding.",
}


def main():
    files = upstream.files()
    homes = {name: path for path, file in files.items() for name in type_names(file)}
    for stale in set(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.proto")) - set(files):
        print(f"no longer in the contract, remove by hand: {stale}")
    for path, file in files.items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file_text(path, file, homes), encoding="utf-8")
    print(f"wrote {len(files)} files under {ROOT}")


def type_names(file):
    """Yields the full names of all messages and enums of the file, with a leading dot."""
    def walk(prefix, messages, enums):
        for enum in enums:
            yield f"{prefix}.{enum.name}"
        for message in messages:
            yield f"{prefix}.{message.name}"
            yield from walk(f"{prefix}.{message.name}", message.nested_type, message.enum_type)
    yield from walk(f".{file.package}", file.message_type, file.enum_type)


def file_text(path, file, homes):
    lines = [f"// {line}" for line in HEADS[path].split("\n")]
    lines += ["", 'syntax = "proto3";', "", f"package {file.package};"]
    imports = sorted({home(name, homes) for name in references(file)} - {path})
    if imports:
        lines.append("")
        lines += [f'import "{name}";' for name in imports]
    for service in file.service:
        lines += ["", *service_lines(service, file.package)]
    for enum in by_name(file.enum_type):
        lines += ["", *enum_lines(enum, "")]
    for message in by_name(file.message_type):
        lines += ["", *message_lines(message, file.package, "")]
    return "\n".join(lines) + "\n"


def references(file):
    def walk(messages):
        for message in messages:
            yield from (field.type_name for field in message.field if field.type_name)
            yield from walk(message.nested_type)
    yield from walk(file.message_type)
    for service in file.service:
        for method in service.method:
            yield from (method.input_type, method.output_type)


def home(name, homes):
    """Returns the file that declares a type; those of google.protobuf come with the compiler."""
    if name in homes:
        return homes[name]
    package, _, short = name.rpartition(".")
    assert package == ".google.protobuf", f"no file declares {name}"
    return {
        "Any": "google/protobuf/any.proto",
        "Duration": "google/protobuf/duration.proto",
        "Empty": "google/protobuf/empty.proto",
        "FieldMask": "google/protobuf/field_mask.proto",
        "Timestamp": "google/protobuf/timestamp.proto",
    }.get(short, "google/protobuf/wrappers.proto")


def service_lines(service, package):
    yield f"service {service.name} {{"
    for method in sorted(service.method, key=lambda method: method.name):
        request = streamed(method.client_streaming) + short(method.input_type, package)
        reply = streamed(method.server_streaming) + short(method.output_type, package)
        line = f"  rpc {method.name}({request}) returns ({reply});"
        if len(line) <= WIDTH:
            yield line
        else:
            yield f"  rpc {method.name}({request})"
            yield f"      returns ({reply});"
    yield "}"


def streamed(yes):
    return "stream " if yes else ""


def enum_lines(enum, indent):
    yield f"{indent}enum {enum.name} {{"
    if len({value.number for value in enum.value}) < len(enum.value):
        yield f"{indent}  option allow_alias = true;"
    for value in enum.value:
        yield f"{indent}  {value.name} = {value.number};"
    yield f"{indent}}}"


def message_lines(message, package, indent):
    entries = {f".{nested.name}": nested for nested in message.nested_type
               if nested.options.map_entry}
    inner = indent + "  "
    body = []
    for enum in by_name(message.enum_type):
        body += [*enum_lines(enum, inner), ""]
    for nested in by_name(message.nested_type):
        if not nested.options.map_entry:
            body += [*message_lines(nested, package, inner), ""]
    body += field_lines(message, package, entries, inner)
    while body and not body[-1]:
        body.pop()
    if not body:
        yield f"{indent}message {message.name} {{}}"
        return
    yield f"{indent}message {message.name} {{"
    yield from body
    yield f"{indent}}}"


def field_lines(message, package, entries, indent):
    """Yields the fields by number; a oneof stands where its first field does."""
    written = set()
    for field in sorted(message.field, key=lambda field: field.number):
        oneof = upstream.oneof_name(message, field)
        if oneof is None:
            yield indent + field_text(field, package, entries)
        elif oneof not in written:
            written.add(oneof)
            yield f"{indent}oneof {oneof} {{"
            for member in sorted(message.field, key=lambda field: field.number):
                if upstream.oneof_name(message, member) == oneof:
                    yield f"{indent}  {field_text(member, package, entries)}"
            yield f"{indent}}}"


def field_text(field, package, entries):
    label = {"single": "", "optional": "optional ", "repeated": "repeated "}[upstream.label(field)]
    entry = entries.get("." + field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = sorted(entry.field, key=lambda field: field.number)
        kind = f"map<{type_text(key, package)}, {type_text(value, package)}>"
        return f"{kind} {field.name} = {field.number};"
    return f"{label}{type_text(field, package)} {field.name} = {field.number};"


def type_text(field, package):
    return short(field.type_name, package) if field.type_name else upstream.type_name(field)


def short(name, package):
    """Returns a type's name relative to its package, or whole when it is of another one."""
    return name.removeprefix(f".{package}.").removeprefix(".")


def by_name(items):
    return sorted(items, key=lambda item: item.name)


if __name__ == "__main__":
    main()

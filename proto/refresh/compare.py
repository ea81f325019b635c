"""Compares FIELDS.txt, the table of our protos, with an installed google-cloud-bigtable.

    venv/bin/python proto/refresh/compare.py

Every message, field, enum value and RPC is compared by full name. Exits with 1 and a list of the
differences if there are any; refresh.py takes them over.
"""

import pathlib
import sys

import upstream

TABLE = pathlib.Path(__file__).resolve().parent.parent / "FIELDS.txt"


def main():
    ours = {line for line in TABLE.read_text(encoding="utf-8").splitlines()
            if line and not line.startswith("#") and not line.split()[1].startswith("tepui.")}
    theirs = set(table(upstream.files().values()))
    assert ours and theirs, "an empty table compares nothing"
    differences = [f"only in ours:    {line}" for line in ours - theirs]
    differences += [f"only in theirs:  {line}" for line in theirs - ours]
    if differences:
        print("\n".join(sorted(differences, key=lambda line: line.split()[3:] + [line])))
        print(f"{len(differences)} differences: see proto/refresh/refresh.py")
        sys.exit(1)
    print(f"our protos agree with the package: {len(ours)} lines compared")


def table(files):
    """Yields the lines that FIELDS.txt holds; tests/suite.rs says how they are written."""
    for file in files:
        yield from enums(file.enum_type, file.package)
        yield from messages(file.message_type, file.package)
        for service in file.service:
            for method in service.method:
                yield (f"rpc {file.package}.{service.name} {method.name}"
                       f" {kind(method.client_streaming)} {method.input_type.removeprefix('.')}"
                       f" {kind(method.server_streaming)} {method.output_type.removeprefix('.')}")


def kind(streaming):
    return "stream" if streaming else "unary"


def messages(found, prefix):
    for message in found:
        name = f"{prefix}.{message.name}"
        yield f"message {name}"
        for field in message.field:
            oneof = upstream.oneof_name(message, field) or "-"
            yield (f"field {name} {field.number} {upstream.label(field)}"
                   f" {upstream.type_name(field)} {field.name} {oneof}")
        yield from enums(message.enum_type, name)
        yield from messages(message.nested_type, name)


def enums(found, prefix):
    for enum in found:
        for value in enum.value:
            yield f"value {prefix}.{enum.name} {value.number} {value.name}"


if __name__ == "__main__":
    main()

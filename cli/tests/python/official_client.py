"""Drives a running server with the official, unmodified Python client.

    BIGTABLE_EMULATOR_HOST=127.0.0.1:PORT python official_client.py write   # before the server is killed
    BIGTABLE_EMULATOR_HOST=127.0.0.1:PORT python official_client.py verify  # after it came back

`count` and `recount` do the same with aggregates and with a family that keeps few versions, `large`
and `relarge` with cells of 100 MiB and reversed reads.

Every expectation is an assertion; the last line printed is `ok` and the number of checks.
"""

import sys

from google.api_core import exceptions
from google.cloud import bigtable
from google.cloud.bigtable.column_family import MaxVersionsGCRule
from google.cloud.bigtable.data import (
    AddToCell,
    BigtableDataClient,
    DeleteAllFromFamily,
    DeleteAllFromRow,
    DeleteRangeFromColumn,
    ReadRowsQuery,
    RowMutationEntry,
    RowRange,
    SetCell,
)
from google.cloud.bigtable.data.exceptions import MutationsExceptionGroup
from google.cloud.bigtable_v2.types import ReadRowsRequest
from google.cloud.bigtable_admin_v2.types import ColumnFamily, Table, Type

PROJECT, INSTANCE, TABLE = "first-light", "instance-1", "official"
COUNTS, ROUNDS = "counts", 400
LARGE, LARGE_BYTES = "large", 100 << 20
BIG = bytes(range(256)) * (5 << 12)  # 5 MiB: more than the client's 4 MiB message limit
checks = 0


def check(condition, what):
    global checks
    checks += 1
    assert condition, what


def cells(row):
    return [(c.family, c.qualifier, c.value, c.timestamp_micros) for c in row] if row else None


def refused(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        check(True, "refused")
        return error
    except MutationsExceptionGroup as group:
        causes = [cause.__cause__ for cause in group.exceptions]
        check(all(isinstance(cause, kind) for cause in causes), causes)
        return causes[0]
    raise AssertionError(f"{call} was not refused with {kind}")


def write():
    admin = bigtable.Client(project=PROJECT, admin=True).instance(INSTANCE)
    table = admin.table(TABLE)
    table.create(initial_split_keys=[b"m", b"t"], column_families={"cf": None, "b": None})
    check(table.exists(), "the table exists")
    check(sorted(table.list_column_families()) == ["b", "cf"], "both families are listed")
    check([t.table_id for t in admin.list_tables()] == [TABLE], "the table is listed")
    refused(exceptions.AlreadyExists, table.create)

    client = BigtableDataClient(project=PROJECT)
    rows = client.get_table(INSTANCE, TABLE)
    for n in range(300):
        key = b"%c%04d" % (b"amtz"[n % 4], n)
        rows.mutate_row(key, [SetCell("cf", b"q", b"v%d" % n, timestamp_micros=1000 * (n + 1))])
    rows.bulk_mutate_rows([
        RowMutationEntry(b"bulk%05d" % n, [
            SetCell("cf", b"x", b"%d" % n, timestamp_micros=5000),
            SetCell("b", b"", b"", timestamp_micros=0),
        ]) for n in range(2000)
    ])
    rows.mutate_row(b"big", [SetCell("cf", b"value", BIG, timestamp_micros=7000)])
    rows.mutate_row(b"deleted", [
        SetCell("cf", b"a", b"1", timestamp_micros=1000),
        SetCell("cf", b"a", b"2", timestamp_micros=2000),
        SetCell("cf", b"a", b"3", timestamp_micros=3000),
        SetCell("b", b"a", b"gone", timestamp_micros=1000),
        DeleteRangeFromColumn("cf", b"a", 2000, 3000),
        DeleteAllFromFamily("b"),
    ])
    rows.mutate_row(b"ghost", [SetCell("cf", b"a", b"1"), DeleteAllFromRow()])
    rows.mutate_row(b"binary\x00\xff", [SetCell("cf", b"\x00\xff\x00", b"\x00", timestamp_micros=0)])
    rows.mutate_row(b"server-time", [SetCell("cf", b"a", b"1")])

    missing = RowMutationEntry(b"bulk00000", [
        SetCell("cf", b"x", b"half", timestamp_micros=9000), SetCell("nope", b"q", b"v"),
    ])
    refused(exceptions.NotFound, rows.bulk_mutate_rows, [missing])
    refused(exceptions.NotFound, rows.mutate_row, b"half", [SetCell("nope", b"q", b"v")])
    refused(exceptions.NotFound, client.get_table(INSTANCE, "absent").read_row, b"r")
    refused(exceptions.InvalidArgument, rows.mutate_row, b"k" * 4097, [SetCell("cf", b"q", b"v")])
    verify()


def verify():
    client = BigtableDataClient(project=PROJECT)
    rows = client.get_table(INSTANCE, TABLE)
    for n in range(300):
        key = b"%c%04d" % (b"amtz"[n % 4], n)
        expected = [("cf", b"q", b"v%d" % n, 1000 * (n + 1))]
        check(cells(rows.read_row(key)) == expected, key)
    bulk = rows.read_rows(ReadRowsQuery(row_ranges=[RowRange(b"bulk", b"bulk\xff")]))
    check([row.row_key for row in bulk] == [b"bulk%05d" % n for n in range(2000)], "bulk keys")
    check(all(cells(row) == [("cf", b"x", b"%d" % n, 5000), ("b", b"", b"", 0)]
              or cells(row) == [("b", b"", b"", 0), ("cf", b"x", b"%d" % n, 5000)]
              for n, row in enumerate(bulk)), "bulk cells")
    check(cells(rows.read_row(b"big")) == [("cf", b"value", BIG, 7000)], "the big value")
    check(cells(rows.read_row(b"deleted")) == [("cf", b"a", b"3", 3000), ("cf", b"a", b"1", 1000)],
          "what was deleted stays deleted")
    check(rows.read_row(b"ghost") is None, "a row without cells does not exist")
    check(cells(rows.read_row(b"binary\x00\xff")) == [("cf", b"\x00\xff\x00", b"\x00", 0)], "bytes")
    stamp = rows.read_row(b"server-time").cells[0].timestamp_micros
    check(stamp % 1000 == 0 and stamp > 1_700_000_000_000_000, "server time in milliseconds")
    everything = [row.row_key for row in rows.read_rows(ReadRowsQuery())]
    check(everything == sorted(everything) and len(everything) == 2304, len(everything))
    limited = rows.read_rows(ReadRowsQuery(row_ranges=[RowRange(b"l", b"u")], limit=5))
    check([row.row_key for row in limited] == everything_from(everything, b"l")[:5], "row limit")
    points = rows.read_rows(ReadRowsQuery(row_keys=[b"t0002", b"absent", b"a0000", b"big"]))
    check([row.row_key for row in points] == [b"a0000", b"big", b"t0002"], "several keys")
    samples = rows.sample_row_keys()
    check([key for key, _ in samples] == [b"m", b"t", b""], samples)


def count():
    instance = bigtable.Client(project=PROJECT, admin=True).instance(INSTANCE)
    kinds = Type.Aggregate
    number = Type(int64_type=Type.Int64())
    families = {
        name: ColumnFamily(value_type=Type(aggregate_type=kinds(input_type=number, **kind)))
        for name, kind in [
            ("sum", {"sum": kinds.Sum()}), ("min", {"min_": kinds.Min()}), ("max", {"max_": kinds.Max()}),
        ]
    }
    families["few"] = ColumnFamily(gc_rule=MaxVersionsGCRule(2).to_pb())
    tables = instance._client.table_admin_client
    tables.create_table(
        parent=instance.name, table_id=COUNTS, table=Table(column_families=families))
    told = tables.get_table(name=f"{instance.name}/tables/{COUNTS}").column_families
    check("sum" in told["sum"].value_type.aggregate_type, told)
    check(told["sum"].value_type.aggregate_type.input_type.int64_type is not None, told)
    check("value_type" not in told["few"] and told["few"].gc_rule.max_num_versions == 2, told)
    family = instance.table(COUNTS).column_family("sum", gc_rule=MaxVersionsGCRule(5))
    family.update()
    told = tables.get_table(name=f"{instance.name}/tables/{COUNTS}").column_families["sum"]
    check("sum" in told.value_type.aggregate_type and told.gc_rule.max_num_versions == 5, told)

    rows = BigtableDataClient(project=PROJECT).get_table(INSTANCE, COUNTS)
    for n in range(ROUNDS):
        rows.mutate_row(b"r%d" % (n % 2), [
            AddToCell("sum", b"q", n, timestamp_micros=1000),
            AddToCell("min", b"q", -n, timestamp_micros=0),
            AddToCell("max", b"q", n, timestamp_micros=0),
            SetCell("few", b"q", b"%d" % n + bytes(20_000), timestamp_micros=1000 * n),
        ])
    rows.mutate_row(b"gone", [AddToCell("sum", b"q", 5, timestamp_micros=0), DeleteAllFromRow()])
    refused(exceptions.InvalidArgument, rows.mutate_row, b"r", [SetCell("sum", b"q", bytes(8))])
    refused(exceptions.InvalidArgument, rows.mutate_row, b"r",
            [AddToCell("few", b"q", 1, timestamp_micros=0)])
    recount()


def recount():
    rows = BigtableDataClient(project=PROJECT).get_table(INSTANCE, COUNTS)
    for row in range(2):
        numbers = range(row, ROUNDS, 2)
        read = rows.read_row(b"r%d" % row)
        folded = {c.family: (int.from_bytes(c.value, "big", signed=True), c.timestamp_micros)
                  for c in read.cells if c.family != "few"}
        expected = {"sum": (sum(numbers), 1000), "min": (-numbers[-1], 0), "max": (numbers[-1], 0)}
        check(folded == expected, folded)
        few = [c.timestamp_micros // 1000 for c in read.cells if c.family == "few"]
        check(few[:2] == [numbers[-1], numbers[-2]], few)
        check(few == sorted(set(few) & set(numbers), reverse=True), few)
        check(all(c.value.startswith(b"%d\0" % (c.timestamp_micros // 1000))
                  for c in read.cells if c.family == "few"), "values belong to their ages")
    check(rows.read_row(b"gone") is None, "what was deleted stays deleted")


def large_value(n):
    return (b"%03d" % n + bytes(range(253))) * (LARGE_BYTES >> 8)


def large():
    admin = bigtable.Client(project=PROJECT, admin=True).instance(INSTANCE)
    admin.table(LARGE).create(initial_split_keys=[b"r3"], column_families={"cf": None})
    rows = BigtableDataClient(project=PROJECT).get_table(INSTANCE, LARGE)
    for n in range(3):
        rows.mutate_row(b"large", [SetCell("cf", b"%d" % n, large_value(n), timestamp_micros=1000)])
        if n == 1:
            relarge_row(rows)  # 200 MiB are read, 300 are not
    rows.mutate_row(b"alone", [SetCell("cf", b"q", large_value(7), timestamp_micros=1000)])
    refused(exceptions.InvalidArgument, rows.mutate_row, b"r",
            [SetCell("cf", b"q", bytes(LARGE_BYTES + 1))])
    rows.bulk_mutate_rows([
        RowMutationEntry(b"r%d" % n, [
            SetCell("cf", b"b", b"%d" % n, timestamp_micros=1000),
            SetCell("cf", b"a", b"", timestamp_micros=1000),
        ]) for n in range(6)
    ])
    relarge()


def relarge_row(rows):
    read = rows.read_row(b"large")
    check([c.qualifier for c in read] == [b"0", b"1"], "two columns")
    check(all(c.value == large_value(n) for n, c in enumerate(read)), "both values")


def relarge():
    client = BigtableDataClient(project=PROJECT)
    rows = client.get_table(INSTANCE, LARGE)
    check(rows.read_row(b"alone").cells[0].value == large_value(7), "a cell of 100 MiB")
    error = refused(exceptions.FailedPrecondition, rows.read_row, b"large")
    told = [detail for detail in error.details if detail.reason == "LargeRowReadError"]
    check(told and told[0].metadata["rowKeyBase64Encoded"] == "bGFyZ2U=", error.details)

    def reversed_keys(start, end, limit=0):
        key_range = {"start_key_closed": start, "end_key_open": end}
        request = ReadRowsRequest(
            table_name=rows.table_name, rows={"row_ranges": [key_range]}, rows_limit=limit,
            reversed=True)
        chunks = [chunk for reply in client._gapic_client.read_rows(request)
                  for chunk in reply.chunks]
        columns = [chunk.qualifier for chunk in chunks]
        check(columns == [b"a", b"b"] * (len(chunks) // 2), "cells of a row keep their order")
        return [chunk.row_key for chunk in chunks if chunk.row_key]

    check(reversed_keys(b"r", b"s") == [b"r%d" % n for n in (5, 4, 3, 2, 1, 0)], "descending")
    check(reversed_keys(b"r1", b"r5") == [b"r4", b"r3", b"r2", b"r1"], "over two ranges")
    check(reversed_keys(b"r", b"s", limit=4) == [b"r5", b"r4", b"r3", b"r2"], "a limit")


def everything_from(keys, start):
    return [key for key in keys if key >= start]


if __name__ == "__main__":
    parts = {
        "write": write, "verify": verify, "count": count, "recount": recount,
        "large": large, "relarge": relarge,
    }
    parts[sys.argv[1]]()
    print(f"ok: {checks} checks")

#!/usr/bin/env python3
"""Counts the Webtable again, independently, and compares it with what the server holds.

    BIGTABLE_EMULATOR_HOST=127.0.0.1:9000 python3 check.py [HTML_DIR] [--limit N]

Reads the same files as `webtable load` did, with Python's own parser and this file's own reading of
the rules in README.md; works out every cell; reads the whole table with Google's Python client
(`pip install google-cloud-bigtable`); compares rows, columns, ages and values, cell by cell. Ends
with 1 if anything differs, 2 if it could not compare.

Use the same HTML_DIR, --limit and --base as for the load, and a table that holds nothing else.
"""

import argparse
import hashlib
import html.parser
import os
import re
import subprocess
import sys
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE_BYTES_MAX = 16 << 20
ROW_BYTES_MAX = 4096
TEXT_BYTES_MAX = 1024
JOINED_BYTES_MAX = 16384
DIFFERENCES_SHOWN = 20


def cut(text, size):
    """At most size bytes of UTF-8, between characters."""
    return text.encode()[:size].decode("utf-8", "ignore")


class Site:
    def __init__(self, base):
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise SystemExit(f"error: invalid base {base!r}")
        self.host = parts.netloc.lower()
        path = parts.path or "/"
        self.path = (path if path.endswith("/") else path + "/").encode()

    def row(self, path):
        name, colon, port = self.host.partition(":")
        return ".".join(reversed(name.split("."))).encode() + (colon + port).encode() + path

    def target(self, folder, href):
        """The bytes of the path that href means, dots and all; None if it is no link."""
        href = re.sub("[\t\n\r\f]", "", href).strip(" ")
        href = re.split("[#?]", href, maxsplit=1)[0]
        if not href:
            return None
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.\-]*):", href)
        if scheme:
            href = href[scheme.end():]
            if scheme.group(1).lower() not in ("http", "https") or not href.startswith("//"):
                return None
        if href.startswith("//"):
            host, slash, path = href[2:].partition("/")
            # Letters of ASCII only: other alphabets have cases of their own.
            if host.encode().lower() != self.host.encode():
                return None
            href = slash + path or "/"
        decoded = urllib.parse.unquote_to_bytes(href.encode())
        if href.startswith("/"):
            return decoded
        return None if folder is None else folder + decoded

    def resolve(self, folder, href):
        path = self.target(folder, href)
        if path is None:
            return None
        path = without_dots(path)
        if path.endswith(b"/"):
            path += b"index.html"
        return path if len(self.row(path)) <= ROW_BYTES_MAX else None

    def rebase(self, folder, href):
        path = self.target(folder, href)
        return None if path is None else folder_of(without_dots(path))


def folder_of(path):
    return path[: path.rfind(b"/") + 1]


def without_dots(path):
    kept = []
    segments = path[1:].split(b"/")
    while segments:
        segment = segments.pop(0)
        if segment == b".." and kept:
            kept.pop()
        if segment not in (b".", b".."):
            kept.append(segment)
        elif not segments:
            kept.append(b"")
    return b"/" + b"/".join(kept)


class Page(html.parser.HTMLParser):
    """Collects, for each target, the texts of the links to it."""

    def __init__(self, site, path):
        super().__init__(convert_charrefs=True)
        self.site = site
        self.folder = folder_of(path)
        self.based = False
        self.open = None
        self.texts = {}
        self.links = 0

    def handle_starttag(self, tag, attributes):
        href = next((value or "" for name, value in attributes if name == "href"), None)
        if tag == "a":
            self.end()
            path = None if href is None else self.site.resolve(self.folder, href)
            if path is not None:
                self.open = (path, [])
                self.links += 1
        elif tag == "base" and href is not None and not self.based:
            self.based = True
            self.folder = self.site.rebase(self.folder, href)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag in self.CDATA_CONTENT_ELEMENTS:
            self.set_cdata_mode(tag)

    def handle_endtag(self, tag):
        if tag == "a":
            self.end()

    def handle_data(self, text):
        if self.open:
            self.open[1].append(text)

    def end(self):
        if not self.open:
            return
        path, pieces = self.open
        self.open = None
        text = cut(re.sub("[\t\n\f\r ]+", " ", "".join(pieces)).strip(" "), TEXT_BYTES_MAX)
        texts = self.texts.setdefault(path, [])
        if text and text not in texts:
            texts.append(text)


def find_tree(folder):
    """The folder and its base, as the loader finds them."""
    try:
        answer = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True)
        rust = os.path.join(answer.stdout.strip(), "share/doc/rust/html")
    except OSError:
        rust = ""
    if folder is None:
        linux = "/usr/share/doc/linux-doc-6.1"
        choices = [rust, linux, os.path.join(HERE, "pages")]
        folder = next(choice for choice in choices if os.path.isdir(choice))
    return folder, "https://doc.rust-lang.org/" if folder == rust else "https://docs.example/"


def find_pages(root, limit):
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            full = os.path.join(folder, name)
            if name.endswith(".html") and os.path.isfile(full) and not os.path.islink(full):
                if os.path.getsize(full) <= PAGE_BYTES_MAX:
                    found.append(os.fsencode(os.path.relpath(full, root)))
    return sorted(found)[:limit]


def fingerprint(value):
    return hashlib.sha256(value).digest()[:16]


def expected_cells(root, site, pages):
    """{row: {(family, qualifier): (timestamp in microseconds, fingerprint of the value)}}"""
    rows = {}
    counts = {"pages": 0, "bytes": 0, "links": 0, "anchors": 0}
    for relative in pages:
        full = os.path.join(os.fsencode(root), relative)
        with open(full, "rb") as file:
            content = file.read()
        micros = os.stat(full).st_mtime_ns // 1_000_000 * 1000
        path = site.path + relative
        page = Page(site, path)
        page.feed(content.decode("utf-8", "replace").replace("\0", "\ufffd"))
        page.close()
        page.end()
        row = site.row(path)
        rows.setdefault(row, {})[("contents", b"html")] = (micros, fingerprint(content))
        for target, texts in page.texts.items():
            text = cut(" | ".join(texts), JOINED_BYTES_MAX).encode()
            rows.setdefault(site.row(target), {})[("anchor", row)] = (micros, fingerprint(text))
        counts["pages"] += 1
        counts["bytes"] += len(content)
        counts["links"] += page.links
        counts["anchors"] += len(page.texts)
    return rows, counts


def stored_rows(options):
    """Yields (row, {(family, qualifier): [(timestamp, fingerprint), …]}) as the server has them."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.bigtable.data import BigtableDataClient, ReadRowsQuery

    os.environ.setdefault("BIGTABLE_EMULATOR_HOST", options.endpoint)
    client = BigtableDataClient(project=options.project, credentials=AnonymousCredentials())
    with client, client.get_table(options.instance, options.table) as table:
        for row in table.read_rows_stream(ReadRowsQuery(), operation_timeout=3600):
            cells = {}
            for cell in row:
                column = (cell.family, cell.qualifier)
                value = (cell.timestamp_micros, fingerprint(cell.value))
                cells.setdefault(column, []).append(value)
            yield row.row_key, cells


def compare(expected, stored):
    """The number of cells compared and the differences."""
    compared, differences = 0, []
    for row, cells in stored:
        wanted = expected.pop(row, {})
        for column in wanted.keys() | cells.keys():
            compared += 1
            want = [wanted[column]] if column in wanted else []
            have = cells.get(column, [])
            if want != have:
                differences.append((row, column, want, have))
    for row, wanted in expected.items():
        for column, want in wanted.items():
            compared += 1
            differences.append((row, column, [want], []))
    return compared, differences


def main():
    parser = argparse.ArgumentParser(description="Compares the Webtable with an independent count.")
    parser.add_argument("html_dir", nargs="?")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--base")
    parser.add_argument("--endpoint", default="127.0.0.1:9000",
                        help="used where BIGTABLE_EMULATOR_HOST is not set")
    parser.add_argument("--project", default="tepui")
    parser.add_argument("--instance", default="dev")
    parser.add_argument("--table", default="webtable")
    options = parser.parse_args()

    try:
        import google.cloud.bigtable.data  # noqa: F401
    except ImportError:
        print("error: needs Google's client: pip install google-cloud-bigtable", file=sys.stderr)
        return 2
    root, base = find_tree(options.html_dir)
    begun = time.monotonic()
    pages = find_pages(root, options.limit)
    expected, counts = expected_cells(root, Site(options.base or base), pages)
    print(f"counted  {counts['pages']} pages, {counts['bytes']} bytes, {counts['links']} links, "
          f"{counts['anchors']} anchor cells, {len(expected)} rows "
          f"in {time.monotonic() - begun:.1f} s")
    begun = time.monotonic()
    rows = len(expected)
    compared, differences = compare(expected, stored_rows(options))
    print(f"compared {compared} cells of {rows} rows with the server's "
          f"in {time.monotonic() - begun:.1f} s: {len(differences)} differences")
    for row, column, want, have in differences[:DIFFERENCES_SHOWN]:
        print(f"  {row!r} {column!r}\n    counted {want}\n    stored  {have}")
    if not compared:
        print("error: nothing to compare", file=sys.stderr)
        return 2
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())

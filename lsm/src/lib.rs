//! One range's storage: memtable, version, manifest, read view, cursors, flush and compaction

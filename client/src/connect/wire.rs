//! What the admin service's messages say, in the words of the seams.

use proto::tepui::admin::v1;
use types::{RangeId, RowRange};

use crate::{RangeStatus, TableRange};

impl From<v1::Range> for TableRange {
    fn from(range: v1::Range) -> TableRange {
        TableRange {
            range: RangeId::new(range.range_id),
            rows: RowRange {
                start: range.start_key,
                end: (!range.end_key.is_empty()).then_some(range.end_key),
            },
            status: RangeStatus {
                bytes: range.bytes,
                memory_bytes: range.memory_bytes,
                files: range.files,
                sorted_runs: range.sorted_runs,
                activity: range.activity.unwrap_or_default().into(),
            },
        }
    }
}

impl From<TableRange> for v1::Range {
    fn from(range: TableRange) -> v1::Range {
        v1::Range {
            range_id: range.range.get(),
            start_key: range.rows.start,
            end_key: range.rows.end.unwrap_or_default(),
            bytes: range.status.bytes,
            memory_bytes: range.status.memory_bytes,
            files: range.status.files,
            sorted_runs: range.status.sorted_runs,
            activity: Some(range.status.activity.into()),
        }
    }
}

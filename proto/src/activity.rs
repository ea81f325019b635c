//! A range's activity, as messages carry it.

use types::RangeActivity;

use crate::tepui::admin::v1;

/// The two have fields of the same names: one list for both ways.
macro_rules! same_fields {
    ($($field:ident),+ $(,)?) => {
        impl From<v1::RangeActivity> for RangeActivity {
            fn from(of: v1::RangeActivity) -> RangeActivity {
                RangeActivity { $($field: of.$field),+ }
            }
        }

        impl From<RangeActivity> for v1::RangeActivity {
            fn from(of: RangeActivity) -> v1::RangeActivity {
                v1::RangeActivity { $($field: of.$field),+ }
            }
        }
    };
}

same_fields!(
    placed_bytes,
    flushed_bytes,
    merge_read_bytes,
    merge_written_bytes,
    moved_bytes,
    merges,
    expired_file_bytes,
    merges_failed,
    files_set_aside,
    merge_blocks,
    merge_blocks_taken,
    slowed_writes,
    slowed_micros,
    stopped_writes,
    stopped_micros,
    row_reads,
    row_tables,
    row_tables_ruled_out,
    row_tables_in_vain,
    blocks_loaded,
    block_bytes_loaded,
    keys_read,
    cells_read,
    seeks,
    live_bytes,
    largest_level_bytes,
    sorted_runs,
    merge_debt,
);

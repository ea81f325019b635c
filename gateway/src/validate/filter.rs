use client::{Error, Result};
use proto::google::bigtable::v2::RowFilter;
use proto::google::bigtable::v2::row_filter::Filter;

use super::unimplemented;

/// Accepts the filters that let everything pass; the others are not built.
pub(crate) fn passes_all(filter: Option<&RowFilter>) -> Result<()> {
    let Some(filter) = filter.and_then(|filter| filter.filter.as_ref()) else {
        return Ok(());
    };
    match filter {
        Filter::PassAllFilter(true) => Ok(()),
        Filter::PassAllFilter(false) => Err(Error::invalid("pass_all_filter must be true if set")),
        other => Err(unimplemented(&format!("Filter {}", name(other)))),
    }
}

fn name(filter: &Filter) -> &'static str {
    match filter {
        Filter::Chain(_) => "chain",
        Filter::Interleave(_) => "interleave",
        Filter::Condition(_) => "condition",
        Filter::RowKeyRegexFilter(_) => "row_key_regex_filter",
        Filter::FamilyNameRegexFilter(_) => "family_name_regex_filter",
        Filter::ColumnQualifierRegexFilter(_) => "column_qualifier_regex_filter",
        Filter::ColumnRangeFilter(_) => "column_range_filter",
        Filter::TimestampRangeFilter(_) => "timestamp_range_filter",
        Filter::ValueRegexFilter(_) => "value_regex_filter",
        Filter::CellsPerRowOffsetFilter(_) => "cells_per_row_offset_filter",
        Filter::CellsPerRowLimitFilter(_) => "cells_per_row_limit_filter",
        Filter::CellsPerColumnLimitFilter(_) => "cells_per_column_limit_filter",
        Filter::StripValueTransformer(_) => "strip_value_transformer",
        Filter::RowSampleFilter(_) => "row_sample_filter",
        Filter::ValueRangeFilter(_) => "value_range_filter",
        Filter::Sink(_) => "sink",
        Filter::PassAllFilter(_) => "pass_all_filter",
        Filter::BlockAllFilter(_) => "block_all_filter",
        Filter::ApplyLabelTransformer(_) => "apply_label_transformer",
        Filter::ValueBitmaskFilter(_) => "value_bitmask_filter",
    }
}

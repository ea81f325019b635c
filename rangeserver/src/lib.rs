//! Serves ranges: admission, group commit, reads, flush, recovery and maintenance

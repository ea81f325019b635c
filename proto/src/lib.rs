//! The wire contract: our own text of google.bigtable.v2 and admin.v2, and conversions to types

//! The binary tepui: dev, table, put, get, scan, inspect
fn main() {}

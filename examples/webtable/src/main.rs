//! The Webtable.
fn main() {}

//! Tests of the wire contract: the table of its fields, and answers that are encoded already.

mod suite {
    mod fields;
    mod server;
}

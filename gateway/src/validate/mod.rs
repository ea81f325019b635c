//! Checks what clients send and turns it into the project's own words.
//!
//! Everything here is pure: it takes a message and a schema and returns the words or the error
//! that the client gets. Invariant: what passes breaks no limit of `types::limits`, so nothing
//! behind the gateway has to fear it.

pub(crate) mod filter;
pub(crate) mod mutations;
pub(crate) mod names;
pub(crate) mod rows;

use client::{Error, Result};
use types::ErrorKind;
use types::limits::ROW_KEY_BYTES_MAX;

/// Checks the key of one row.
pub(crate) fn row_key(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("Row keys must be non-empty"));
    }
    if key.len() > ROW_KEY_BYTES_MAX {
        return Err(too_long("Row key", key.len(), ROW_KEY_BYTES_MAX));
    }
    Ok(())
}

pub(crate) fn too_long(what: &str, bytes: usize, limit: usize) -> Error {
    Error::invalid(format!("{what} has {bytes} bytes, more than {limit}"))
}

pub(crate) fn unimplemented(what: &str) -> Error {
    Error::new(ErrorKind::Unimplemented, format!("{what} is not implemented"))
}

/// Refuses a field that is set but has no meaning here yet.
pub(crate) fn refuse(is_set: bool, what: &str) -> Result<()> {
    if is_set {
        return Err(unimplemented(what));
    }
    Ok(())
}

use client::{Error, Result};
use types::{TableName, validate_instance_name};

/// Bytes of a resource's full name.
const NAME_BYTES_MAX: usize = 1024;

/// Takes the full name of a table apart.
pub(crate) fn table(full: &str) -> Result<TableName> {
    short_enough(full)?;
    TableName::parse(full).map_err(Error::invalid)
}

/// Checks the full name of an instance. Instances exist by being named.
pub(crate) fn instance(full: &str) -> Result<()> {
    short_enough(full)?;
    validate_instance_name(full).map_err(Error::invalid)
}

fn short_enough(full: &str) -> Result<()> {
    if full.len() > NAME_BYTES_MAX {
        return Err(super::too_long("A name", full.len(), NAME_BYTES_MAX));
    }
    Ok(())
}

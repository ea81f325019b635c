//! What a list of family changes makes of a schema: pure.

use client::{Error, FamilyChange, NewFamily, Result};
use types::limits::FAMILIES_MAX;
use types::{ErrorKind, TableSchema, validate_family_name};

use crate::record::is_shallow;

/// Applies changes in order, all or none (on an error the schema is to be thrown away).
pub(crate) fn apply(schema: &mut TableSchema, changes: Vec<FamilyChange>) -> Result<()> {
    for change in changes {
        match change {
            FamilyChange::Create(family) => add(schema, family)?,
            FamilyChange::SetRetention(NewFamily { name, retention, .. }) => {
                check_retention(retention.as_ref())?;
                let declared = schema.families.iter_mut().find(|family| family.name == name);
                declared.ok_or_else(|| absent(&name))?.retention = retention;
            }
            FamilyChange::Drop(name) => {
                let before = schema.families.len();
                schema.families.retain(|family| family.name != name);
                if schema.families.len() == before {
                    return Err(absent(&name));
                }
                leave_groups(schema);
            }
        }
    }
    if schema.families.len() > FAMILIES_MAX {
        return Err(Error::invalid(format!(
            "{} column families, more than {FAMILIES_MAX}",
            schema.families.len()
        )));
    }
    Ok(())
}

/// Declares a family.
pub(crate) fn add(schema: &mut TableSchema, family: NewFamily) -> Result<()> {
    validate_family_name(&family.name).map_err(Error::invalid)?;
    check_retention(family.retention.as_ref())?;
    schema
        .add_family(&family.name, family.retention, family.aggregate)
        .map(drop)
        .map_err(|kind| Error::new(kind, format!("Column family already exists: {}", family.name)))
}

/// Dropped families leave their locality group; one that is left empty goes too.
fn leave_groups(schema: &mut TableSchema) {
    let families = &schema.families;
    schema.groups.retain_mut(|group| {
        let was_empty = group.families.is_empty();
        group.families.retain(|id| families.iter().any(|family| family.id == *id));
        was_empty || !group.families.is_empty()
    });
}

fn check_retention(retention: Option<&types::Retention>) -> Result<()> {
    if retention.is_some_and(|retention| !is_shallow(retention)) {
        return Err(Error::invalid("GC rules are nested too deeply"));
    }
    Ok(())
}

fn absent(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("Requested column family not found: {name}"))
}

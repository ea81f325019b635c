//! What a list of locality groups makes of a schema: pure.

use client::{Error, NewGroup, Result};
use types::limits::{GROUP_BLOCK_BYTES_MAX, GROUP_BLOCK_BYTES_MIN, GROUPS_MAX};
use types::{ErrorKind, FamilyId, GroupSettings, LocalityGroup, TableSchema, validate_family_name};

/// The group of every family that no other names.
const DEFAULT_GROUP: &str = "default";

/// Replaces the groups of a schema (on an error the schema is to be thrown away).
pub(crate) fn define(schema: &mut TableSchema, groups: Vec<NewGroup>) -> Result<()> {
    if groups.len() > GROUPS_MAX {
        let text = format!("{} locality groups, more than {GROUPS_MAX}", groups.len());
        return Err(Error::invalid(text));
    }
    let mut defined: Vec<LocalityGroup> = Vec::new();
    for group in groups {
        let group = check(schema, group)?;
        let taken = |other: &&LocalityGroup| other.name == group.name;
        if defined.iter().any(|other| taken(&other)) {
            return Err(Error::invalid(format!("locality group {:?} stands twice", group.name)));
        }
        let doubled = |id: &&FamilyId| defined.iter().any(|other| other.families.contains(id));
        if let Some(id) = group.families.iter().find(doubled) {
            let text =
                format!("column family {:?} is in two locality groups", name_of(schema, *id));
            return Err(Error::invalid(text));
        }
        // The default group is there anyway.
        if group.name != DEFAULT_GROUP || group.settings != GroupSettings::default() {
            defined.push(group);
        }
    }
    schema.groups = defined;
    Ok(())
}

fn check(schema: &TableSchema, group: NewGroup) -> Result<LocalityGroup> {
    let NewGroup { name, families, settings } = group;
    validate_family_name(&name)
        .map_err(|_| Error::invalid(format!("invalid locality group name {name:?}")))?;
    let is_default = name == DEFAULT_GROUP;
    if is_default && !families.is_empty() {
        let text = "the locality group \"default\" takes the families that no other names";
        return Err(Error::invalid(text));
    }
    if !is_default && families.is_empty() {
        return Err(Error::invalid(format!("locality group {name:?} has no column family")));
    }
    let allowed = GROUP_BLOCK_BYTES_MIN..=GROUP_BLOCK_BYTES_MAX;
    if let Some(bytes) = settings.block_bytes.filter(|bytes| !allowed.contains(bytes)) {
        return Err(Error::invalid(format!(
            "blocks of {bytes} bytes: a locality group's have from {GROUP_BLOCK_BYTES_MIN} to \
             {GROUP_BLOCK_BYTES_MAX}"
        )));
    }
    let mut ids = Vec::with_capacity(families.len());
    for family in &families {
        let absent =
            || Error::new(ErrorKind::NotFound, format!("Column family not found: {family}"));
        ids.push(schema.family(family).ok_or_else(absent)?.id);
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        let text = format!("column family {:?} stands twice", name_of(schema, pair[0]));
        return Err(Error::invalid(text));
    }
    Ok(LocalityGroup { name, families: ids, settings })
}

fn name_of(schema: &TableSchema, id: FamilyId) -> &str {
    schema.family_by_id(id).map_or("", |family| &family.name)
}

//! Locality groups on the command line: `NAME=FAMILY[,FAMILY…][,SETTING…]`.

use client::NewGroup;
use serde_json::{Value, json};
use types::{Bloom, Compression, GroupSettings};

use crate::size;

/// Reads a group.
///
/// # Errors
/// A text that says what is wrong.
pub(crate) fn parse(argument: &str) -> Result<NewGroup, String> {
    let (name, rest) = argument
        .split_once('=')
        .ok_or_else(|| format!("{argument:?}: expected NAME=FAMILY,...[,SETTING...]"))?;
    let mut group = NewGroup {
        name: name.to_owned(),
        families: Vec::new(),
        settings: GroupSettings::default(),
    };
    for word in rest.split(',').filter(|word| !word.is_empty()) {
        take(&mut group, word)?;
    }
    Ok(group)
}

fn take(group: &mut NewGroup, word: &str) -> Result<(), String> {
    let settings = &mut group.settings;
    let (setting, value) = word.split_once(':').unwrap_or((word, ""));
    match (setting, value) {
        ("in-memory", "") => settings.in_memory = true,
        ("compression", "none") => settings.compression = Some(Compression::None),
        ("compression", "lz4") => settings.compression = Some(Compression::Lz4),
        ("filters", "rows") => settings.bloom = Bloom::Row,
        ("filters", "none") => settings.bloom = Bloom::None,
        ("block", bytes) => {
            let bytes = size::parse(bytes)?;
            let bytes = u32::try_from(bytes).map_err(|_| format!("{word}: too large"))?;
            settings.block_bytes = Some(bytes);
        }
        (_, "") => {
            types::validate_family_name(word)?;
            group.families.push(word.to_owned());
        }
        _ => {
            return Err(format!(
                "{word:?} is neither a family nor one of in-memory, compression:none, \
                 compression:lz4, filters:rows, filters:none, block:SIZE"
            ));
        }
    }
    Ok(())
}

/// A group's settings as they are written on the command line.
pub(crate) fn settings(settings: &GroupSettings) -> String {
    let mut words = Vec::new();
    if settings.in_memory {
        words.push("in-memory".to_owned());
    }
    match settings.compression {
        None => {}
        Some(Compression::None) => words.push("compression:none".to_owned()),
        Some(Compression::Lz4) => words.push("compression:lz4".to_owned()),
    }
    match settings.bloom {
        Bloom::RowAndColumn => {}
        Bloom::Row => words.push("filters:rows".to_owned()),
        Bloom::None => words.push("filters:none".to_owned()),
    }
    words.extend(settings.block_bytes.map(|bytes| format!("block:{bytes}")));
    words.join(",")
}

/// A group as JSON.
pub(crate) fn to_json(group: &NewGroup) -> Value {
    json!({
        "group": group.name,
        "families": group.families,
        "settings": settings(&group.settings),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_families_and_settings() {
        let group = parse("hot=a,b,in-memory,compression:none,filters:rows,block:16KiB").unwrap();
        assert_eq!((group.name.as_str(), group.families.len()), ("hot", 2));
        let text = settings(&group.settings);
        assert_eq!(text, "in-memory,compression:none,filters:rows,block:16384");
        let again = parse(&format!("hot=a,b,{text}")).unwrap();
        assert_eq!(again, group);
        assert_eq!(parse("default=in-memory").unwrap().families, Vec::<String>::new());
        for bad in ["hot", "hot=a,compression:zip", "hot=a b", "hot=block:x", "hot=filters:"] {
            parse(bad).expect_err(bad);
        }
    }
}

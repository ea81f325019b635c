use types::Retention;

/// May a cell be dropped that is `age` microseconds old and older than `newer` visible ones of its
/// column? The more there are, the rather.
pub(crate) fn allows(retention: &Retention, newer: u64, age: i64) -> bool {
    match retention {
        Retention::MaxVersions(count) => newer >= u64::from(*count),
        Retention::MaxAge(micros) => age > *micros,
        Retention::Intersection(parts) => {
            !parts.is_empty() && parts.iter().all(|part| allows(part, newer, age))
        }
        Retention::Union(parts) => parts.iter().any(|part| allows(part, newer, age)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_counts_newer_cells_and_microseconds() {
        let versions = Retention::MaxVersions;
        let age = Retention::MaxAge;
        let both = |parts: Vec<Retention>| Retention::Intersection(parts);
        let any = |parts: Vec<Retention>| Retention::Union(parts);
        for (rule, newer, old, allowed) in [
            (versions(2), 1, i64::MAX, false),
            (versions(2), 2, 0, true),
            (versions(u32::MAX), u64::from(u32::MAX) - 1, 0, false),
            (versions(u32::MAX), u64::from(u32::MAX), 0, true),
            (versions(i32::MAX as u32), 1 << 31, 0, true),
            (age(10), u64::MAX, 10, false),
            (age(10), 0, 11, true),
            (age(i64::MAX), 0, i64::MAX, false),
            (age(10), 0, i64::MIN, false),
            (both(vec![versions(1), age(10)]), 1, 10, false),
            (both(vec![versions(1), age(10)]), 0, 11, false),
            (both(vec![versions(1), age(10)]), 1, 11, true),
            (both(Vec::new()), u64::MAX, i64::MAX, false),
            (any(vec![versions(1), age(10)]), 0, 10, false),
            (any(vec![versions(1), age(10)]), 1, 0, true),
            (any(vec![versions(1), age(10)]), 0, 11, true),
            (any(Vec::new()), u64::MAX, i64::MAX, false),
            (any(vec![both(vec![versions(3), age(10)]), versions(9)]), 3, 11, true),
            (any(vec![both(vec![versions(3), age(10)]), versions(9)]), 8, 0, false),
        ] {
            assert_eq!(allows(&rule, newer, old), allowed, "{rule:?} {newer} {old}");
        }
    }
}

//! What a range's storage must know of its table's families: which there are, which of their cells
//! may be dropped, and which are aggregates.

use types::{Aggregate, FamilyId, Retention, TableSchema};

/// One family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyRule {
    /// Which.
    pub id: FamilyId,
    /// Which of its cells may be dropped; `None` keeps all.
    pub retention: Option<Retention>,
    /// How operands fold to cells; `None`: its cells are put.
    pub aggregate: Option<Aggregate>,
}

/// The families of a table under one schema. Built once per schema, and shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyRules {
    /// By id.
    families: Vec<FamilyRule>,
    /// Their ids.
    ids: Vec<FamilyId>,
    /// Ids from here on were not given yet.
    next: FamilyId,
    /// Is there a family of aggregates with a retention rule?
    drop_aggregates: bool,
}

/// What the rules say of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing<'a> {
    /// It is there.
    Alive(&'a FamilyRule),
    /// It was dropped. Its id is never given again, so its cells are gone for good.
    Dropped,
    /// These rules are older than the family.
    Unknown,
}

impl FamilyRules {
    /// The rules of a schema.
    pub fn of(schema: &TableSchema) -> FamilyRules {
        let families = schema.families.iter().map(|family| FamilyRule {
            id: family.id,
            retention: family.retention.clone(),
            aggregate: family.aggregate,
        });
        FamilyRules::new(families.collect(), schema.next_family)
    }

    /// The rules of `families`, in any order; ids from `next` on were not given yet.
    pub fn new(mut families: Vec<FamilyRule>, next: FamilyId) -> FamilyRules {
        families.sort_unstable_by_key(|family| family.id);
        let next = families.last().map_or(next, |last| next.max(FamilyId::new(last.id.get() + 1)));
        let ids = families.iter().map(|family| family.id).collect();
        let drops = |family: &FamilyRule| family.aggregate.is_some() && family.retention.is_some();
        let drop_aggregates = families.iter().any(drops);
        FamilyRules { families, ids, next, drop_aggregates }
    }

    /// Families whose cells are put and all kept: for tools and tests.
    pub fn plain(families: &[FamilyId]) -> FamilyRules {
        let rule = |&id| FamilyRule { id, retention: None, aggregate: None };
        FamilyRules::new(families.iter().map(rule).collect(), FamilyId::ROW)
    }

    /// May cells be dropped whose operands merges meet one after the other?
    pub(crate) fn drop_aggregates(&self) -> bool {
        self.drop_aggregates
    }

    /// The families that are there, ascending.
    pub fn ids(&self) -> &[FamilyId] {
        &self.ids
    }

    /// The rule of a family that is there.
    pub fn get(&self, id: FamilyId) -> Option<&FamilyRule> {
        let place = self.families.binary_search_by_key(&id, |family| family.id).ok()?;
        self.families.get(place)
    }

    pub(crate) fn standing(&self, id: FamilyId) -> Standing<'_> {
        match self.get(id) {
            Some(rule) => Standing::Alive(rule),
            None if id < self.next => Standing::Dropped,
            None => Standing::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_alive_dropped_or_unknown() {
        let [one, two, three, four] = [1, 2, 3, 4].map(FamilyId::new);
        let rules = FamilyRules::plain(&[three, one]);
        assert_eq!(rules.standing(two), Standing::Dropped);
        assert_eq!(rules.standing(four), Standing::Unknown);
        let alive = rules.get(three).unwrap();
        assert_eq!(rules.standing(three), Standing::Alive(alive));
        assert_eq!(FamilyRules::new(Vec::new(), two).standing(one), Standing::Dropped);
    }
}

//! Operands, folded when they are read.

use super::*;

fn add(family: u32, qualifier: &str, timestamp: i64, operand: i64) -> Mutation {
    Mutation::AddToCell {
        family: FamilyId::new(family),
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp: Some(at(timestamp)),
        operand,
    }
}

#[test]
fn operands_of_one_timestamp_are_one_cell() {
    block_on(async {
        let batches = [
            vec![row(b"a", vec![add(4, "q", 7, 1), add(4, "q", 5, i64::MAX), add(5, "q", 5, 3)])],
            vec![row(b"a", vec![add(4, "q", 5, 2), add(5, "q", 5, -4), add(4, "r", 5, 8)])],
        ];
        let (memtable, table, last) = table_and_memtable(&batches).await;
        let merge = MergeCursor::new(vec![memtable, table]);
        let mut scan = Scan::new(merge, &RowRange::all(), last, &rules());
        let cells: Vec<(u32, i64, i64)> = collect(&mut scan)
            .await
            .into_iter()
            .map(|((_, family, _, at), value)| {
                (family.get(), at.0.micros(), key::operand(&value).unwrap())
            })
            .collect();
        let expected = [(4, 7, 1), (4, 5, i64::MAX.wrapping_add(2)), (4, 5, 8), (5, 5, 3)];
        assert_eq!(cells, expected);
        assert_eq!(scan.counts().visible, 4);
    });
}

#[test]
fn a_cell_that_is_not_of_its_familys_kind_is_damage() {
    block_on(async {
        let wrong = [
            Mutation::SetCell {
                family: FamilyId::new(4),
                qualifier: Bytes::new(),
                timestamp: Some(at(1)),
                value: Bytes::from_static(&[0; 8]),
            },
            add(1, "q", 1, 1),
        ];
        for mutation in wrong {
            let batches = [vec![row(b"a", vec![set("q", 2)])], vec![row(b"a", vec![mutation])]];
            let (memtable, table, last) = table_and_memtable(&batches).await;
            let merge = MergeCursor::new(vec![memtable, table]);
            let mut scan = Scan::new(merge, &RowRange::all(), last, &rules());
            let outcome = loop {
                match scan.next().await {
                    Ok(true) => {}
                    outcome => break outcome,
                }
            };
            assert_eq!(outcome.unwrap_err().kind(), types::ErrorKind::Corrupt);
            assert!(!scan.next().await.unwrap(), "the scan is over");
        }
    });
}

#[test]
fn an_aggregate_that_merges_may_have_parted_is_not_shown() {
    block_on(async {
        let batches = [
            vec![row(b"a", vec![add(4, "q", 100, 1), add(4, "q", 50, 2), add(4, "r", 20, 3)])],
            vec![row(b"a", vec![add(4, "q", 90, 4), add(4, "q", 50, 8), set("q", 2)])],
        ];
        for (retention, expected) in [
            (None, vec![(100, 1), (90, 4), (50, 10), (20, 3)]),
            (Some(Retention::MaxAge(30)), vec![(100, 1), (90, 4)]),
            (Some(Retention::MaxVersions(2)), vec![(100, 1), (90, 4), (20, 3)]),
            (Some(Retention::MaxVersions(1)), vec![(100, 1), (20, 3)]),
        ] {
            let rule = |(id, aggregate): (u32, Option<Aggregate>)| FamilyRule {
                id: FamilyId::new(id),
                retention: retention.clone(),
                aggregate,
            };
            let rules = FamilyRules::new(ALIVE.map(rule).into(), FamilyId::new(6));
            let (memtable, table, last) = table_and_memtable(&batches).await;
            let merge = MergeCursor::new(vec![memtable, table]);
            let scan = Scan::new(merge, &RowRange::all(), last, &Arc::new(rules));
            let found: Vec<(i64, i64)> = collect(&mut scan.as_of(110))
                .await
                .into_iter()
                .filter(|((_, family, ..), _)| family.get() == 4)
                .map(|((.., at), value)| (at.0.micros(), key::operand(&value).unwrap()))
                .collect();
            assert_eq!(found, expected, "{retention:?}");
        }
    });
}

//! Granting ranges, and finding who serves them.

use std::sync::Arc;

use client::{AdminService, Assignments, Locator};
use storage::memory::{Crash, MemoryFileSystem};
use types::{ErrorKind, RangeId, SessionId};

use super::cluster::{Cluster, Fake, create, name, new_table, run};

/// HBASE-14012: two servers had a region at once after its server and the master had failed.
#[test]
fn every_grant_has_a_higher_epoch_and_lasts() {
    run(async {
        let disk = MemoryFileSystem::new();
        let cluster = Cluster::start(&disk, 1).await.unwrap();
        let schema = cluster.master.create_table(new_table("t", &["f"], &["m"])).await.unwrap();
        let ranges = cluster.master.ranges().await.unwrap();
        let ids: Vec<RangeId> = ranges.iter().map(|(range, _)| *range).collect();
        assert_eq!(ranges, [(ids[0], schema.id), (ids[1], schema.id)]);
        let first = cluster.master.assign(&ids, cluster.session).await.unwrap();
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|grant| grant.epoch.get() == 1 && grant.schema == schema));
        assert_eq!(&first[1].rows.start[..], b"m");
        let second = cluster.master.assign(&ids[1..], SessionId::new(77)).await.unwrap();
        assert_eq!(second[0].epoch.get(), 2);
        let cluster = Cluster::start(&disk.crash(Crash::PowerCut { seed: 3 }), 2).await.unwrap();
        let third = cluster.master.assign(&ids, cluster.session).await.unwrap();
        let epochs: Vec<u64> = third.iter().map(|grant| grant.epoch.get()).collect();
        assert_eq!(epochs, [2, 3]);
        let layout = cluster.master.locate(&name("t")).await.unwrap();
        assert_eq!(layout.ranges[1].epoch.get(), 3);
    });
}

#[test]
fn ranges_of_no_table_are_left_out() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        cluster.master.create_table(new_table("t", &["f"], &[])).await.unwrap();
        cluster.master.create_table(new_table("u", &["f"], &[])).await.unwrap();
        let both = [RangeId::new(2), RangeId::new(99), RangeId::new(1)];
        let granted = cluster.master.assign(&both, cluster.session).await.unwrap();
        let ids: Vec<u64> = granted.iter().map(|grant| grant.range.get()).collect();
        assert_eq!(ids, [1, 2]);
        *cluster.server.fails.lock().unwrap() = true;
        cluster.master.delete_table(&name("t")).await.unwrap_err();
        let granted = cluster.master.assign(&both, cluster.session).await.unwrap();
        assert_eq!(granted.len(), 1, "a table being deleted is none");
        assert_eq!(cluster.master.ranges().await.unwrap().len(), 1);
    });
}

#[test]
fn a_grant_carries_the_schema_of_its_moment() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        cluster.master.create_table(new_table("t", &["f"], &[])).await.unwrap();
        for generation in 2..5 {
            let change = vec![create(&format!("f{generation}"))];
            cluster.master.modify_families(&name("t"), change).await.unwrap();
            let granted = cluster.master.assign(&[RangeId::new(1)], cluster.session).await.unwrap();
            assert_eq!(granted[0].schema.generation.get(), generation);
        }
    });
}

#[test]
fn the_owner_serves_or_else_whoever_is_there() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        cluster.master.create_table(new_table("t", &["f"], &["m"])).await.unwrap();
        let (other, session) = (Arc::new(Fake::default()), SessionId::new(500));
        let attached = tepui_master::Server {
            session,
            ranges: other.clone(),
            observer: other.clone(),
            keeper: other.clone(),
        };
        cluster.master.attach(attached).await.unwrap();
        cluster.master.assign(&[RangeId::new(1)], cluster.session).await.unwrap();
        cluster.master.assign(&[RangeId::new(2)], session).await.unwrap();
        let served_by = async |range: usize| {
            let layout = cluster.master.locate(&name("t")).await.unwrap();
            Arc::as_ptr(&layout.ranges[range].server).cast::<()>()
        };
        let (one, two) = (Arc::as_ptr(&cluster.server).cast(), Arc::as_ptr(&other).cast());
        assert_eq!((served_by(0).await, served_by(1).await), (one, two));
        cluster.master.detach(cluster.session);
        assert_eq!((served_by(0).await, served_by(1).await), (two, two));
        cluster.master.detach(session);
        let error = cluster.master.locate(&name("t")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    });
}

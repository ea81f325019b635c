//! The same files read without a server around them: views, scans, blocks and their cache. This is
//! what an embedded store's own reads compare with; a server also makes replies of what it reads.

use std::sync::Arc;

use bytes::Bytes;
use client::Assignments;
use env::Env;
use lsm::{
    FamilyRules, FileIds, NoListener, OutlivedMemory, RateLimiter, Store, StoreConfig, StoreOptions,
};
use sstable::{BlockCache, ValueRef};
use storage::{FileSystem, Path};
use types::{RowRange, SessionId};

use super::catalog::OneRange;
use crate::Result;

/// The storage of the one range, its server being gone.
pub(crate) struct Storage {
    store: Arc<Store>,
    rules: Arc<FamilyRules>,
}

impl Storage {
    pub(crate) async fn open(
        files: Arc<dyn FileSystem>,
        env: &Env,
        catalog: &OneRange,
        cache: Arc<BlockCache>,
        options: StoreOptions,
    ) -> Result<Storage> {
        let session = SessionId::new(env.random_u128());
        let range = catalog.target().range;
        let granted = catalog.assign(&[range], session).await?;
        let granted = granted.into_iter().next().ok_or("there is no such range")?;
        let store = Store::open(StoreConfig {
            files,
            env: env.clone(),
            table_folder: Path::new("tables").join(&granted.schema.id.get().to_string()),
            table: granted.schema.id,
            range,
            bounds: granted.rows,
            epoch: granted.epoch,
            session,
            file_ids: Arc::new(FileIds::new(session)),
            cache: Some(cache),
            limiter: Arc::new(RateLimiter::new(env.clone(), 0)),
            outlived: OutlivedMemory::default(),
            events: Arc::new(NoListener),
            options,
        });
        let rules = Arc::new(FamilyRules::of(&granted.schema));
        Ok(Storage { store: store.await?, rules })
    }

    /// Reads all rows; how many cells there are.
    pub(crate) async fn scan(&self) -> Result<u64> {
        self.read(&RowRange::all(), false).await
    }

    /// Reads a row; how many cells it has.
    pub(crate) async fn get(&self, key: &Bytes) -> Result<u64> {
        self.read(&RowRange::row(key), true).await
    }

    async fn read(&self, rows: &RowRange, fill_cache: bool) -> Result<u64> {
        let mut scan = self.store.view()?.scan(rows, &self.rules, fill_cache);
        let (mut cells, mut bytes) = (0, 0);
        while scan.next().await? {
            let cell = scan.cell();
            if let ValueRef::Inline(value) = cell.value {
                bytes += cell.row_prefix.len() + value.len();
            }
            cells += 1;
        }
        std::hint::black_box(bytes);
        Ok(cells)
    }
}

//! The care for ranges, over `AdminService`: our own service for operators.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use client::{AdminService, Result, Router};
use futures::Stream;
use futures::stream::try_unfold;
use proto::tepui::admin::v1;
use proto::tepui::admin::v1::ranges_server::Ranges;
use tonic::{Request, Response, Status};
use types::TableName;

use crate::admin::answer;
use crate::status::status;
use crate::validate::{names, row_key};

/// Serves the care for ranges.
#[derive(Clone)]
pub struct RangesGateway {
    admin: Arc<dyn AdminService>,
    router: Arc<Router>,
}

impl std::fmt::Debug for RangesGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RangesGateway")
    }
}

impl RangesGateway {
    /// Asks `admin`, and tells `router` which tables were divided.
    pub fn new(admin: Arc<dyn AdminService>, router: Arc<Router>) -> RangesGateway {
        RangesGateway { admin, router }
    }

    async fn list(&self, request: v1::ListRangesRequest) -> Result<v1::ListRangesResponse> {
        let name = names::table(&request.table_name)?;
        let ranges = self.admin.list_ranges(&name).await?;
        Ok(v1::ListRangesResponse { ranges: ranges.into_iter().map(v1::Range::from).collect() })
    }

    async fn split(&self, request: v1::SplitTableRequest) -> Result<v1::SplitTableResponse> {
        let name = names::table(&request.table_name)?;
        let mut rows = request.row_keys;
        rows.iter().try_for_each(|row| row_key(row))?;
        rows.sort_unstable();
        rows.dedup();
        let divided = self.admin.split_table(&name, rows).await;
        self.router.forget(&name);
        Ok(v1::SplitTableResponse { row_keys: divided? })
    }

    async fn flush(&self, request: v1::FlushTableRequest) -> Result<v1::FlushTableResponse> {
        let name = names::table(&request.table_name)?;
        self.admin.flush_table(&name).await?;
        Ok(v1::FlushTableResponse {})
    }
}

/// Merges range after range, as the answers are taken.
fn compact(
    admin: Arc<dyn AdminService>,
    name: TableName,
) -> impl Stream<Item = std::result::Result<v1::CompactTableResponse, Status>> + Send {
    try_unfold(Some(Bytes::new()), move |next| {
        let (admin, name) = (Arc::clone(&admin), name.clone());
        async move {
            let Some(row) = next else {
                return Ok(None);
            };
            let merged = admin.compact_at(&name, &row).await.map_err(|error| status(&error))?;
            let next = merged.rows.end.clone();
            Ok(Some((v1::CompactTableResponse { range: Some(merged.into()) }, next)))
        }
    })
}

#[async_trait::async_trait]
impl Ranges for RangesGateway {
    type CompactTableStream =
        Pin<Box<dyn Stream<Item = std::result::Result<v1::CompactTableResponse, Status>> + Send>>;

    async fn list_ranges(
        &self,
        request: Request<v1::ListRangesRequest>,
    ) -> std::result::Result<Response<v1::ListRangesResponse>, Status> {
        answer(self.list(request.into_inner()).await)
    }

    async fn split_table(
        &self,
        request: Request<v1::SplitTableRequest>,
    ) -> std::result::Result<Response<v1::SplitTableResponse>, Status> {
        answer(self.split(request.into_inner()).await)
    }

    async fn flush_table(
        &self,
        request: Request<v1::FlushTableRequest>,
    ) -> std::result::Result<Response<v1::FlushTableResponse>, Status> {
        answer(self.flush(request.into_inner()).await)
    }

    async fn compact_table(
        &self,
        request: Request<v1::CompactTableRequest>,
    ) -> std::result::Result<Response<Self::CompactTableStream>, Status> {
        let name = names::table(&request.into_inner().table_name);
        let name = name.map_err(|error| status(&error))?;
        Ok(Response::new(Box::pin(compact(Arc::clone(&self.admin), name))))
    }
}

//! Talks to a server over the network, in the public Bigtable API.
//!
//! A [`Client`] is one connection to one instance; a [`Table`] is a name on it. Both are cheap to
//! clone and may be used by many tasks at once. Calls that can be repeated safely are repeated a
//! few times when the server is not there or says that waiting helps.

mod admin;
mod layout;
mod merge;
mod mutation;
mod ranges;
mod read;
mod retry;
mod row;
mod status;
mod wire;
mod write;

use std::time::Duration;

use env::Env;
use proto::google::bigtable::admin::v2::bigtable_table_admin_client::BigtableTableAdminClient;
use proto::google::bigtable::v2::bigtable_client::BigtableClient;
use proto::limits;
use proto::tepui::admin::v1::layouts_client::LayoutsClient;
use proto::tepui::admin::v1::ranges_client::RangesClient;
use tonic::transport::{Channel, Endpoint};
use types::{ErrorKind, TableName};

pub use admin::TableDescription;
pub use layout::RemoteScrub;
pub use merge::Merger;
pub use mutation::RowMutation;
pub use ranges::{Compaction, DroppedRows};
pub use read::Scan;
pub use row::{Cell, Row, RowFamily};

use crate::{Error, Result};

/// How long making a connection may take.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long one call, or one message of a streamed answer, may take.
const CALL_WAIT_MAX: Duration = Duration::from_secs(300);

/// A connection to one instance of a server.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    instance: String,
    env: Env,
}

impl Client {
    /// Connects to the server at `endpoint` (`host:port` or `http://host:port`) for the instance
    /// `projects/P/instances/I`.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed endpoint or instance; `Unavailable` when nobody answers.
    pub async fn connect(endpoint: &str, instance: &str) -> Result<Client> {
        Client::connect_in(Env::system(), endpoint, instance).await
    }

    /// As [`Client::connect`], with waits and randomness taken from `env`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_in(env: Env, endpoint: &str, instance: &str) -> Result<Client> {
        types::validate_instance_name(instance).map_err(Error::invalid)?;
        let target = parse_endpoint(endpoint)?;
        let channel = target.connect().await.map_err(|error| {
            let why = root_cause(&error);
            Error::new(ErrorKind::Unavailable, format!("cannot connect to {endpoint}: {why}"))
        })?;
        Ok(Client { channel, instance: instance.to_owned(), env })
    }

    /// The table called `id`, which need not exist yet.
    pub fn table(&self, id: &str) -> Table {
        Table { client: self.clone(), name: self.table_name(id).to_string() }
    }

    /// The instance, `projects/P/instances/I`.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    fn table_name(&self, id: &str) -> TableName {
        TableName { instance: self.instance.clone(), table: id.to_owned() }
    }

    fn data(&self) -> BigtableClient<Channel> {
        limits::data_client(self.channel.clone())
    }

    fn admin(&self) -> BigtableTableAdminClient<Channel> {
        limits::table_admin_client(self.channel.clone())
    }

    fn layouts(&self) -> LayoutsClient<Channel> {
        LayoutsClient::new(self.channel.clone())
    }

    fn ranges(&self) -> RangesClient<Channel> {
        limits::ranges_client(self.channel.clone())
    }

    /// Waits for `call`, not for ever, and says what its failure means.
    async fn call<T>(
        &self,
        call: impl Future<Output = std::result::Result<T, tonic::Status>>,
    ) -> Result<T> {
        match self.env.timeout(CALL_WAIT_MAX, call).await {
            Ok(answer) => answer.map_err(|status| status::error(&status)),
            Err(_) => Err(Error::new(
                ErrorKind::DeadlineExceeded,
                format!("no answer within {} s", CALL_WAIT_MAX.as_secs()),
            )),
        }
    }
}

/// One table of an instance.
#[derive(Clone, Debug)]
pub struct Table {
    client: Client,
    name: String,
}

impl Table {
    /// Its full name, `projects/P/instances/I/tables/T`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The innermost reason, which is what people can act on ("connection refused").
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

fn parse_endpoint(endpoint: &str) -> Result<Endpoint> {
    let malformed = |why: &str| Error::invalid(format!("invalid endpoint {endpoint:?}: {why}"));
    let address = match endpoint.split_once("://") {
        None => endpoint,
        Some(("http", address)) => address,
        Some((scheme, _)) => {
            return Err(malformed(&format!("{scheme} is not supported, only http")));
        }
    };
    let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        return Err(malformed("expected HOST:PORT"));
    }
    let target = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| malformed(&error.to_string()))?;
    // No keep-alive: the call's own time limit decides, and an idle connection costs nothing.
    Ok(target.tcp_nodelay(true).tcp_keepalive(None).connect_timeout(CONNECT_WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_host_and_a_port() {
        for good in ["127.0.0.1:9000", "http://localhost:1", "[::1]:9000"] {
            parse_endpoint(good).unwrap();
        }
        for bad in ["", "localhost", "localhost:port", "https://a:1", "a b:1", "h:99999"] {
            let error = parse_endpoint(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}

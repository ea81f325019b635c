//! Which server and instance a command means, and how it prints.

use clap::{Args, ValueEnum};
use client::{Client, Result, Table};

const DEFAULT_ENDPOINT: &str = "127.0.0.1:9000";

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: one JSON object a line.
    Json,
}

/// The options that all commands over the network share.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// The server [env: TEPUI_ENDPOINT, BIGTABLE_EMULATOR_HOST] [default: 127.0.0.1:9000]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    endpoint: Option<String>,
    /// The project that the instance belongs to.
    #[arg(long, global = true, env = "TEPUI_PROJECT", default_value = "tepui")]
    project: String,
    /// The instance that the table belongs to.
    #[arg(long, global = true, env = "TEPUI_INSTANCE", default_value = "dev")]
    instance: String,
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

impl Target {
    /// Connects to the server.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) async fn connect(&self) -> Result<Client> {
        let instance = format!("projects/{}/instances/{}", self.project, self.instance);
        Client::connect(&self.endpoint(), &instance).await
    }

    /// Connects to the server, for a table.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) async fn open(&self, table: &str) -> Result<Table> {
        Ok(self.connect().await?.table(table))
    }

    fn endpoint(&self) -> String {
        let set = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
        self.endpoint
            .clone()
            .or_else(|| set("TEPUI_ENDPOINT"))
            .or_else(|| set("BIGTABLE_EMULATOR_HOST"))
            .unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned())
    }
}

#![doc = include_str!("../README.md")]

mod address;
mod demo;
mod files;
mod links;
mod load;
mod query;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use client::{Client, Table};

use crate::address::Site;
use crate::demo::Demo;
use crate::files::Source;
use crate::load::Tree;

#[derive(Parser)]
#[command(about = "The Webtable of the Bigtable paper, from real HTML pages", version)]
struct Options {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Target {
    /// The server, HOST:PORT
    #[arg(long, global = true, env = "TEPUI_ENDPOINT", default_value = "127.0.0.1:9000")]
    endpoint: String,
    /// The project of the instance
    #[arg(long, global = true, default_value = "tepui")]
    project: String,
    /// The instance of the table
    #[arg(long, global = true, default_value = "dev")]
    instance: String,
    /// The table
    #[arg(long, global = true, default_value = "webtable")]
    table: String,
    /// The address that the pages are published under: https://HOST/PATH/
    #[arg(long, global = true)]
    base: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Loads a tree of HTML pages
    Load(Load),
    /// Prints who links to a page, and with which words
    LinksTo {
        /// A URL, a path in the tree, or a row
        page: String,
        /// Links to print
        #[arg(long, default_value_t = 20)]
        count: usize,
    },
    /// Prints the pages that most others link to
    Top {
        /// Pages to print
        #[arg(long, default_value_t = 10)]
        count: usize,
    },
    /// Prints the pages of a folder
    Scan {
        /// The beginning of a URL, of a path in the tree, or of a row
        prefix: String,
        /// Pages to print
        #[arg(long, default_value_t = 20)]
        count: usize,
    },
    /// Starts a server, loads, asks, kills the server, asks again
    Demo(DemoOptions),
}

#[derive(Args)]
struct Load {
    /// The folder of the tree [default: the documentation of the Rust toolchain, else that of
    /// Linux, else a small tree of our own]
    html_dir: Option<PathBuf>,
    /// Loads only the first so many pages
    #[arg(long)]
    limit: Option<usize>,
    /// Ranges that a new table is divided into
    #[arg(long, default_value_t = 4)]
    ranges: usize,
}

#[derive(Args)]
struct DemoOptions {
    #[command(flatten)]
    load: Load,
    /// The server's binary [default: tepui in the folder of this binary]
    #[arg(long)]
    tepui: Option<PathBuf>,
    /// The server's data folder
    #[arg(long, default_value = "webtable-data")]
    data: PathBuf,
    /// The page whose links are asked for [default: the most linked one]
    #[arg(long)]
    page: Option<String>,
    /// The folder to scan [default: alloc/vec/ of the toolchain's documentation, else all]
    #[arg(long)]
    prefix: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), String> {
    let Options { target, command } = options;
    match command {
        Command::Load(load) => {
            let tree = target.tree(load)?;
            let client = target.connect().await?;
            load::load(&client, &target.table, &tree).await
        }
        Command::LinksTo { page, count } => {
            query::links_to(&target.open().await?, &target.site()?, &page, count).await
        }
        Command::Top { count } => query::top(&target.open().await?, count).await.map(|_| ()),
        Command::Scan { prefix, count } => {
            query::scan(&target.open().await?, &target.site()?, &prefix, count).await
        }
        Command::Demo(options) => {
            let tree = target.tree(options.load)?;
            let rust = tree.site.to_string() == files::RUST_BASE;
            let prefix = if rust { "alloc/vec/" } else { "" };
            let demo = Demo {
                tepui: options.tepui,
                data: options.data,
                instance: target.instance_name(),
                table: target.table.clone(),
                page: options.page,
                prefix: options.prefix.unwrap_or_else(|| prefix.to_owned()),
                tree,
            };
            demo::run(&demo).await
        }
    }
}

impl Target {
    fn instance_name(&self) -> String {
        format!("projects/{}/instances/{}", self.project, self.instance)
    }

    async fn connect(&self) -> Result<Client, String> {
        Client::connect(&self.endpoint, &self.instance_name())
            .await
            .map_err(|error| error.to_string())
    }

    async fn open(&self) -> Result<Table, String> {
        Ok(self.connect().await?.table(&self.table))
    }

    fn site(&self) -> Result<Site, String> {
        match &self.base {
            Some(base) => Site::parse(base),
            None => Site::parse(Source::find(None).base),
        }
    }

    fn tree(&self, load: Load) -> Result<Tree, String> {
        let source = Source::find(load.html_dir.as_deref());
        Ok(Tree {
            site: Site::parse(self.base.as_deref().unwrap_or(source.base))?,
            folder: source.folder,
            limit: load.limit,
            ranges: load.ranges,
        })
    }
}

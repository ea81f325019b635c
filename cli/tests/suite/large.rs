//! Cells of 100 MiB under a memory budget that holds two of them, and scans all the while.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use client::{Client, RowMutation, Table};
use env::Env;
use tokio::runtime::Runtime;
use types::limits::VALUE_BYTES_MAX;
use types::{ErrorKind, RowRange};

use crate::tepui::Server;

pub(crate) const FLAGS: [&str; 1] = ["--memory-budget=256M"];
const BUDGET_BYTES: u64 = 256 << 20;
/// What a process may take besides its budget.
const BESIDES_BYTES: u64 = 64 << 20;
/// Where the command line makes its tables.
const INSTANCE: &str = "projects/tepui/instances/dev";
const SCANS: usize = 8;
const SMALL_ROWS: usize = 64 << 10;
const LARGE_ROWS: u8 = 3;

/// Claims that the server has never had more memory than its budget and a little.
pub(crate) fn assert_within_budget(server: &Server) {
    let peak = peak_bytes(server);
    println!("peak: {} MiB", peak >> 20);
    assert!(peak <= BUDGET_BYTES + BESIDES_BYTES, "{} MiB", peak >> 20);
}

/// The most memory that a process has had.
#[expect(clippy::disallowed_methods, reason = "reads the kernel's accounting, not data")]
fn peak_bytes(server: &Server) -> u64 {
    let path = Path::new("/proc").join(server.process.id().to_string()).join("status");
    let status = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn large(salt: u8) -> Bytes {
    (0..VALUE_BYTES_MAX).map(|at| (at / 255) as u8 ^ (at % 255) as u8 ^ salt).collect()
}

async fn fill(table: &Table) {
    for rows in (0..SMALL_ROWS).collect::<Vec<_>>().chunks(1000) {
        let rows = rows.iter().map(|number| {
            RowMutation::new(format!("row{number:06}")).set("f", "q", None, vec![b'v'; 1000])
        });
        let outcomes = table.mutate_rows(rows.collect()).await;
        assert!(outcomes.iter().all(Result::is_ok));
    }
}

async fn scan_until(table: Table, stop: Arc<AtomicBool>) -> usize {
    let mut whole = 0;
    while !stop.load(Relaxed) {
        let mut scan = table.scan(RowRange::prefix(&"row".into()), None);
        let mut rows = 0;
        while scan.next().await.unwrap().is_some() && !stop.load(Relaxed) {
            rows += 1;
        }
        whole += usize::from(rows == SMALL_ROWS);
    }
    whole
}

async fn read_back(table: &Table) {
    for salt in 0..LARGE_ROWS {
        let row = table.get(format!("large{salt}")).await.unwrap().unwrap();
        assert!(row.cell("f", b"q").unwrap().value == large(salt), "cell {salt}");
    }
}

#[test]
fn cells_of_100_mib_survive_kill_9_and_the_memory_stays_bounded() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &FLAGS);
    server.expect(&["table", "create", "t", "--family", "f", "--split", "m"]);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&server.endpoint, INSTANCE).await.unwrap();
        let table = client.table("t");
        fill(&table).await;
        let stop = Arc::new(AtomicBool::new(false));
        let scans: Vec<_> = (0..SCANS)
            .map(|_| Env::system().spawn("scan", scan_until(table.clone(), Arc::clone(&stop))))
            .collect();
        for salt in 0..LARGE_ROWS {
            table.put(format!("large{salt}"), "f", "q", None, large(salt)).await.unwrap();
        }
        let over = Bytes::from(vec![0; VALUE_BYTES_MAX + 1]);
        let refused = table.put("large", "f", "q", None, over).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        read_back(&table).await;
        stop.store(true, Relaxed);
        for scan in scans {
            scan.join().await.unwrap();
        }
    });
    assert_within_budget(&server);
    server.kill();
    let server = Server::start(data.path(), &FLAGS);
    runtime.block_on(async {
        let client = Client::connect(&server.endpoint, INSTANCE).await.unwrap();
        read_back(&client.table("t")).await;
    });
    assert_within_budget(&server);
    server.terminate();
}

//! Requests that no client would send: every answer is a clear refusal, and nothing panics. (The
//! client calls the server in process, so that a panic of it fails the test.)

use bytes::Bytes;
use proto::google::bigtable::admin::v2 as admin;
use proto::google::bigtable::admin::v2::modify_column_families_request::modification::Mod;
use proto::google::bigtable::v2 as data;
use proto::google::bigtable::v2::mutation as m;
use proto::google::bigtable::v2::row_range::{EndKey, StartKey};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tonic::{Code, Status};

use super::world::{INSTANCE, TABLE, World};

const SEEDS: u64 = 1500;

fn pick<T: Clone>(random: &mut StdRng, choices: &[T]) -> T {
    choices.choose(random).unwrap().clone()
}

fn blob(random: &mut StdRng) -> Bytes {
    let length = pick(random, &[0, 1, 1, 2, 8, 4096, 4097, 16384, 16385]);
    let byte = pick(random, &[0, 1, b'a', b'm', 0x7f, 0xff]);
    Bytes::from(vec![byte; length])
}

fn number(random: &mut StdRng) -> i64 {
    let odd = [0, 1, -1, -2, 999, 1000, 1001, i64::MAX, i64::MIN, i64::MAX / 1000 * 1000];
    pick(random, &odd)
}

fn small(random: &mut StdRng) -> i32 {
    pick(random, &[0, 1, 2, 3, 4, -1, 99, i32::MAX, i32::MIN])
}

fn text(random: &mut StdRng) -> String {
    let odd = ["f", "g", "f", "", "nope", "a:b", "é", "\0", "x y", "../..", "%00"];
    let text = pick(random, &odd);
    text.repeat(pick(random, &[1, 1, 1, 1, 40, 5000]))
}

fn table(random: &mut StdRng) -> String {
    if random.random_bool(0.8) {
        return TABLE.to_owned();
    }
    let parent = pick(random, &[INSTANCE, "", "projects//instances/i", "tables", "a/b/c/d/e/f"]);
    format!("{parent}/tables/{}", text(random))
}

fn value(random: &mut StdRng) -> Option<data::Value> {
    use data::value::Kind;
    let kind = match random.random_range(0..6) {
        0 => return None,
        1 => None,
        2 => Some(Kind::RawTimestampMicros(number(random))),
        3 => Some(Kind::IntValue(number(random))),
        4 => Some(Kind::ArrayValue(data::ArrayValue { values: vec![data::Value::default(); 3] })),
        _ => Some(Kind::RawValue(blob(random))),
    };
    Some(data::Value { kind, r#type: None })
}

fn mutation(random: &mut StdRng) -> data::Mutation {
    let family_name = text(random);
    let column_qualifier = blob(random);
    let kind = match random.random_range(0..7) {
        0 | 1 => Some(m::Mutation::SetCell(m::SetCell {
            family_name,
            column_qualifier,
            timestamp_micros: number(random),
            value: blob(random),
        })),
        2 => Some(m::Mutation::DeleteFromColumn(m::DeleteFromColumn {
            family_name,
            column_qualifier,
            time_range: random.random_bool(0.7).then(|| data::TimestampRange {
                start_timestamp_micros: number(random),
                end_timestamp_micros: number(random),
            }),
        })),
        3 => Some(m::Mutation::DeleteFromFamily(m::DeleteFromFamily { family_name })),
        4 => Some(m::Mutation::DeleteFromRow(m::DeleteFromRow {})),
        5 => Some(m::Mutation::MergeToCell(m::MergeToCell {
            family_name,
            column_qualifier: value(random),
            timestamp: value(random),
            input: value(random),
        })),
        _ => None,
    };
    data::Mutation { mutation: kind, timestamp_origin: small(random) }
}

fn mutations(random: &mut StdRng) -> Vec<data::Mutation> {
    let count = random.random_range(0..4);
    (0..count).map(|_| mutation(random)).collect()
}

fn row_range(random: &mut StdRng) -> data::RowRange {
    let start_key = match random.random_range(0..3) {
        0 => Some(StartKey::StartKeyClosed(blob(random))),
        1 => Some(StartKey::StartKeyOpen(blob(random))),
        _ => None,
    };
    let end_key = match random.random_range(0..3) {
        0 => Some(EndKey::EndKeyClosed(blob(random))),
        1 => Some(EndKey::EndKeyOpen(blob(random))),
        _ => None,
    };
    data::RowRange { start_key, end_key }
}

fn rule(random: &mut StdRng, depth: usize) -> admin::GcRule {
    use admin::gc_rule::{Intersection, Rule, Union};
    let rules = |random: &mut StdRng| {
        let count = if depth == 0 { 0 } else { random.random_range(0..3) };
        (0..count).map(|_| rule(random, depth - 1)).collect()
    };
    let rule = match random.random_range(0..5) {
        0 => Some(Rule::MaxNumVersions(small(random))),
        1 => Some(Rule::MaxAge(prost_types::Duration {
            seconds: number(random),
            nanos: small(random),
        })),
        2 => Some(Rule::Intersection(Intersection { rules: rules(random) })),
        3 => Some(Rule::Union(Union { rules: rules(random) })),
        _ => None,
    };
    admin::GcRule { rule }
}

fn family(random: &mut StdRng) -> admin::ColumnFamily {
    admin::ColumnFamily {
        gc_rule: random.random_bool(0.7).then(|| rule(random, 4)),
        value_type: random.random_bool(0.1).then(admin::Type::default),
    }
}

fn modification(random: &mut StdRng) -> admin::modify_column_families_request::Modification {
    let r#mod = match random.random_range(0..5) {
        0 => Some(Mod::Create(family(random))),
        1 => Some(Mod::Update(family(random))),
        2 => Some(Mod::Drop(random.random_bool(0.5))),
        _ => None,
    };
    admin::modify_column_families_request::Modification {
        id: text(random),
        r#mod,
        update_mask: random
            .random_bool(0.3)
            .then(|| prost_types::FieldMask { paths: vec![text(random)] }),
    }
}

async fn data_call(world: &mut World, random: &mut StdRng) -> Result<(), Status> {
    let table_name = table(random);
    match random.random_range(0..4) {
        0 => {
            let request = data::MutateRowRequest {
                table_name,
                row_key: blob(random),
                mutations: mutations(random),
                ..Default::default()
            };
            world.data.mutate_row(request).await.map(|_| ())
        }
        1 => {
            let count = random.random_range(0..5);
            let entries = (0..count).map(|_| (blob(random), mutations(random)));
            let codes = world.mutate_rows(entries.collect()).await?;
            let refusals = [Code::Ok, Code::InvalidArgument, Code::NotFound];
            assert!(codes.iter().all(|code| refusals.contains(code)), "{codes:?}");
            Ok(())
        }
        2 => {
            let keys = random.random_range(0..3);
            let row_keys = (0..keys).map(|_| blob(random)).collect();
            let ranges = random.random_range(0..3);
            let row_ranges = (0..ranges).map(|_| row_range(random)).collect();
            let request = data::ReadRowsRequest {
                table_name,
                rows: Some(data::RowSet { row_keys, row_ranges }),
                rows_limit: number(random),
                request_stats_view: small(random),
                ..Default::default()
            };
            world.read(request).await.map(|_| ())
        }
        _ => {
            let request = data::SampleRowKeysRequest { table_name, ..Default::default() };
            world.data.sample_row_keys(request).await.map(|_| ())
        }
    }
}

async fn admin_call(world: &mut World, random: &mut StdRng) -> Result<(), Status> {
    match random.random_range(0..5) {
        0 => {
            let splits = random.random_range(0..4);
            let families = random.random_range(0..3);
            let request = admin::CreateTableRequest {
                parent: pick(random, &[INSTANCE, INSTANCE, "", "projects/p"]).to_owned(),
                table_id: text(random),
                table: random.random_bool(0.8).then(|| admin::Table {
                    name: text(random),
                    column_families: (0..families)
                        .map(|_| (text(random), family(random)))
                        .collect(),
                    granularity: small(random),
                    ..Default::default()
                }),
                initial_splits: (0..splits)
                    .map(|_| admin::create_table_request::Split { key: blob(random) })
                    .collect(),
            };
            world.admin.create_table(request).await.map(|_| ())
        }
        1 => {
            let request = admin::ListTablesRequest {
                parent: pick(random, &[INSTANCE, "", "projects/p/instances/-"]).to_owned(),
                view: small(random),
                page_token: text(random),
                page_size: small(random),
            };
            world.admin.list_tables(request).await.map(|_| ())
        }
        2 => {
            let request = admin::GetTableRequest { name: table(random), view: small(random) };
            world.admin.get_table(request).await.map(|_| ())
        }
        3 => {
            let count = random.random_range(0..4);
            let request = admin::ModifyColumnFamiliesRequest {
                name: table(random),
                modifications: (0..count).map(|_| modification(random)).collect(),
                ignore_warnings: random.random_bool(0.5),
            };
            let answer = world.admin.modify_column_families(request).await;
            answer.map(|_| ())
        }
        _ => {
            let name = format!("{INSTANCE}/tables/{}", text(random));
            let request = admin::DeleteTableRequest { name };
            world.admin.delete_table(request).await.map(|_| ())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_requests_are_answered_or_refused_clearly() {
    let mut world = World::with_table(&["b", "m"]).await;
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let answer = if random.random_bool(0.6) {
            data_call(&mut world, &mut random).await
        } else {
            admin_call(&mut world, &mut random).await
        };
        let Err(status) = answer else {
            answered += 1;
            continue;
        };
        refused += 1;
        let clear = matches!(
            status.code(),
            Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::Unimplemented
        );
        assert!(clear, "seed {seed}: {status:?}");
        assert!(!status.message().is_empty() && status.message().len() <= 1024);
    }
    assert!(answered > 100 && refused > 100, "{answered} answered, {refused} refused");
}

/// One piece of body.
struct OnePiece(Option<Bytes>);

impl http_body::Body for OnePiece {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        std::task::Poll::Ready(self.0.take().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_message_do_no_harm() {
    use tonic::codegen::{Service, http};

    let world = World::with_table(&[]).await;
    let gateway = tepui_gateway::DataGateway::new(world.router.clone());
    let mut service = proto::limits::data_server(gateway);
    let methods = ["MutateRow", "MutateRows", "ReadRows", "SampleRowKeys", "PingAndWarm", "Nope"];
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let length = random.random_range(0..200usize);
        let mut body = vec![0u8; length];
        random.fill(&mut body[..]);
        let framed = random.random_bool(0.8);
        if framed {
            // A frame whose length is right, so that the message itself is met.
            let head = [&[0][..], &u32::try_from(length).unwrap().to_be_bytes()].concat();
            body.splice(0..0, head);
        }
        let path = format!("/google.bigtable.v2.Bigtable/{}", pick(&mut random, &methods));
        let request = http::Request::post(path)
            .header("content-type", "application/grpc")
            .body(OnePiece(Some(body.into())))
            .unwrap();
        let answer = service.call(request).await.unwrap();
        assert_eq!(answer.status(), 200, "seed {seed}");
        let code = answer.headers().get("grpc-status");
        let code = code.map_or("", |code| code.to_str().unwrap());
        assert!(!framed || ["", "3", "5", "12"].contains(&code), "seed {seed}: {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn millions_of_empty_parts_are_refused_before_they_are_decoded() {
    use tonic::codegen::{Service, http};

    let world = World::with_table(&[]).await;
    let gateway = tepui_gateway::DataGateway::new(world.router.clone());
    let mut service = proto::limits::data_server(gateway);
    // Two bytes each: a mutation, an entry; a row set with two bytes for each of its keys.
    let rows = [&[0x12, 0x80, 0x80, 0x80, 0x05][..], &[0x0a, 0].repeat(5 << 20)].concat();
    for (method, message) in [
        ("MutateRow", [0x1a, 0].repeat(5 << 20)),
        ("MutateRows", [0x12, 0].repeat(5 << 20)),
        ("ReadRows", rows),
    ] {
        let length = u32::try_from(message.len()).unwrap();
        let body = [&[0][..], &length.to_be_bytes(), &message].concat();
        let request = http::Request::post(format!("/google.bigtable.v2.Bigtable/{method}"))
            .header("content-type", "application/grpc")
            .body(OnePiece(Some(body.into())))
            .unwrap();
        let answer = service.call(request).await.unwrap();
        let text = answer.headers()["grpc-message"].to_str().unwrap();
        assert!(text.starts_with("5242880%20"), "{method}: {text}");
        assert_eq!(answer.headers()["grpc-status"], "3");
    }
}

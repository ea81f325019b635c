//! SampleRowKeys and PingAndWarm.

use proto::google::bigtable::v2 as data;
use tonic::Code;

use super::world::{INSTANCE, TABLE, World};

async fn samples(world: &mut World) -> Vec<(String, i64)> {
    let request = data::SampleRowKeysRequest { table_name: TABLE.to_owned(), ..Default::default() };
    let stream = world.data.sample_row_keys(request).await.unwrap();
    let mut stream = stream.into_inner();
    let mut found = Vec::new();
    while let Some(sample) = stream.message().await.unwrap() {
        let key = String::from_utf8(sample.row_key.to_vec()).unwrap();
        found.push((key, sample.offset_bytes));
    }
    found
}

#[tokio::test]
async fn the_samples_are_the_splits_and_the_end_with_the_total() {
    let mut world = World::with_table(&["m", "c", "x", "c"]).await;
    let keys = |found: &[(String, i64)]| -> Vec<String> {
        found.iter().map(|(key, _)| key.clone()).collect()
    };
    assert_eq!(keys(&samples(&mut world).await), ["c", "m", "x", ""]);
    world.fill(&["a", "dd", "eee", "z"]).await;
    let found = samples(&mut world).await;
    let sizes: Vec<i64> = found.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(sizes, [1, 6, 6, 7]);
}

#[tokio::test]
async fn an_empty_table_has_one_sample_the_empty_key() {
    let mut world = World::with_table(&[]).await;
    assert_eq!(samples(&mut world).await, [(String::new(), 0)]);
    // A split that the router has not heard of is found out.
    world.fake.split(&super::world::table_name(), "k");
    assert_eq!(samples(&mut world).await.len(), 2);
}

#[tokio::test]
async fn ping_and_warm_is_ok_for_any_instance_even_without_a_table() {
    let mut world = World::empty();
    for (name, code) in [
        (INSTANCE, Code::Ok),
        ("projects/p/instances/never-heard-of", Code::Ok),
        ("", Code::InvalidArgument),
        ("projects/p", Code::InvalidArgument),
        ("projects/p/instances/i/tables/t", Code::InvalidArgument),
    ] {
        let request = data::PingAndWarmRequest { name: name.to_owned(), ..Default::default() };
        let answer = world.data.ping_and_warm(request).await;
        let found = answer.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(found, code, "{name}");
    }
}

//! The committed table of fields says what our protos say.
//!
//! Its lines, which `refresh/compare.py` writes in the same way from Google's package:
//!
//! ```text
//! message <message>
//! field <message> <number> single|optional|repeated <type> <name> <oneof or ->
//! value <enum> <number> <name>
//! rpc <service> <method> unary|stream <request> unary|stream <reply>
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

const HEAD: &str = "\
# Every message, field, enum value and RPC of our protos, by full name. tests/suite/fields.rs says
# how the lines are written and rewrites them with UPDATE_GOLDENFILES=1; refresh/compare.py compares
# them with Google's package.
";

/// A line and what it is sorted by: owner, kind, number.
type Line = (String, &'static str, i32, String);

#[test]
#[expect(clippy::disallowed_methods, reason = "the golden file lies in the source folder")]
fn the_committed_table_matches_our_protos() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("FIELDS.txt");
    let table = table();
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    let ours: BTreeSet<&str> = table.lines().collect();
    let theirs: BTreeSet<&str> = committed.lines().collect();
    let missing: Vec<_> = ours.difference(&theirs).collect();
    let stale: Vec<_> = theirs.difference(&ours).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "FIELDS.txt lacks {missing:#?} and should not have {stale:#?}; rewrite it with \
         UPDATE_GOLDENFILES=1 if the protos changed on purpose"
    );
    assert_eq!(committed, table, "FIELDS.txt is in another order");
}

#[test]
fn the_table_holds_what_older_copies_of_the_contract_lack() {
    let table = table();
    for line in [
        "field google.bigtable.v2.Mutation 7 single \
         enum:google.bigtable.v2.Mutation.TimestampOrigin timestamp_origin -",
        "value google.bigtable.admin.v2.Table.TimestampGranularity 2 MICROS",
        "rpc google.bigtable.v2.Bigtable ReadRows unary google.bigtable.v2.ReadRowsRequest \
         stream google.bigtable.v2.ReadRowsResponse",
        "rpc google.longrunning.Operations GetOperation unary \
         google.longrunning.GetOperationRequest unary google.longrunning.Operation",
    ] {
        assert!(table.lines().any(|candidate| candidate == line), "no line {line}");
    }
}

fn table() -> String {
    let set = FileDescriptorSet::decode(tepui_proto::FILE_DESCRIPTOR_SET).expect("our own bytes");
    let mut lines = BTreeSet::new();
    for file in &set.file {
        // What comes with every compiler is not ours to pin; what is ours alone has no other copy.
        let is_google = file.package().starts_with("google.");
        if !is_google || file.package() == "google.protobuf" {
            continue;
        }
        for message in &file.message_type {
            add_message(file.package(), message, &mut lines);
        }
        for found in &file.enum_type {
            add_enum(file.package(), found, &mut lines);
        }
        for service in &file.service {
            add_service(file.package(), service, &mut lines);
        }
    }
    let mut table = HEAD.to_owned();
    for (_, _, _, line) in lines {
        table.push_str(&line);
        table.push('\n');
    }
    table
}

fn add_message(scope: &str, message: &DescriptorProto, lines: &mut BTreeSet<Line>) {
    let name = format!("{scope}.{}", message.name());
    lines.insert((name.clone(), "a message", 0, format!("message {name}")));
    for field in &message.field {
        let line = format!(
            "field {name} {} {} {} {} {}",
            field.number(),
            label(field),
            type_name(field),
            field.name(),
            oneof(message, field)
        );
        lines.insert((name.clone(), "field", field.number(), line));
    }
    for nested in &message.nested_type {
        add_message(&name, nested, lines);
    }
    for found in &message.enum_type {
        add_enum(&name, found, lines);
    }
}

fn label(field: &FieldDescriptorProto) -> &'static str {
    match field.label() {
        Label::Repeated => "repeated",
        Label::Optional if field.proto3_optional() => "optional",
        Label::Optional | Label::Required => "single",
    }
}

fn type_name(field: &FieldDescriptorProto) -> String {
    let referred = field.type_name().trim_start_matches('.');
    match field.r#type() {
        Type::Message => format!("message:{referred}"),
        Type::Enum => format!("enum:{referred}"),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn oneof<'a>(message: &'a DescriptorProto, field: &FieldDescriptorProto) -> &'a str {
    match field.oneof_index {
        Some(index) if !field.proto3_optional() => message.oneof_decl[index as usize].name(),
        _ => "-",
    }
}

fn add_enum(scope: &str, found: &EnumDescriptorProto, lines: &mut BTreeSet<Line>) {
    let name = format!("{scope}.{}", found.name());
    for value in &found.value {
        let line = format!("value {name} {} {}", value.number(), value.name());
        lines.insert((name.clone(), "value", value.number(), line));
    }
}

fn add_service(scope: &str, service: &ServiceDescriptorProto, lines: &mut BTreeSet<Line>) {
    let name = format!("{scope}.{}", service.name());
    let kind = |streaming| if streaming { "stream" } else { "unary" };
    for method in &service.method {
        let line = format!(
            "rpc {name} {} {} {} {} {}",
            method.name(),
            kind(method.client_streaming()),
            method.input_type().trim_start_matches('.'),
            kind(method.server_streaming()),
            method.output_type().trim_start_matches('.')
        );
        lines.insert((name.clone(), "rpc", 0, line));
    }
}

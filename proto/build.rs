//! Turns the .proto text into Rust, without protoc:
//!
//! 1. protox compiles every file of `proto/` into a descriptor set, which the crate also carries.
//! 2. tonic-prost-build makes of it the messages and the client of every service.
//! 3. `tonic_build::manual` makes the server traits, for the methods listed in `SERVED` alone:
//!    whatever is not listed, tonic answers with UNIMPLEMENTED.
//!
//! Servers are made apart from clients because a method's codec can be chosen only there: a method
//! `AsEncoded` answers with messages that somebody else has encoded (`crate::codec::Encoded`).
#![expect(clippy::disallowed_methods, reason = "a build script reads and writes files itself")]

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use tonic_build::manual;

/// What a served method answers with.
enum Answers {
    /// With a message, which the server encodes.
    AsMessage,
    /// With bytes that already are an encoded message.
    AsEncoded,
}
use Answers::{AsEncoded, AsMessage};

/// The methods that have a place in the server traits; to serve one more, add its line.
const SERVED: &[(&str, &[(&str, Answers)])] = &[
    (
        "google.bigtable.v2.Bigtable",
        &[
            ("MutateRow", AsMessage),
            ("MutateRows", AsMessage),
            ("PingAndWarm", AsMessage),
            ("ReadRows", AsEncoded),
            ("SampleRowKeys", AsMessage),
        ],
    ),
    (
        "google.bigtable.admin.v2.BigtableTableAdmin",
        &[
            ("CreateTable", AsMessage),
            ("DeleteTable", AsMessage),
            ("DropRowRange", AsMessage),
            ("GetTable", AsMessage),
            ("ListTables", AsMessage),
            ("ModifyColumnFamilies", AsMessage),
        ],
    ),
    (
        "tepui.admin.v1.Layouts",
        &[
            ("CreateTable", AsMessage),
            ("GetLayout", AsMessage),
            ("ScrubTable", AsMessage),
            ("SetLocalityGroups", AsMessage),
        ],
    ),
    (
        "tepui.admin.v1.Ranges",
        &[
            ("CompactTable", AsMessage),
            ("FlushTable", AsMessage),
            ("ListRanges", AsMessage),
            ("SplitTable", AsMessage),
        ],
    ),
];

/// Types of google.protobuf that have a Rust type of their own. A value in `BytesValue` stays a
/// slice of the message it came in.
const WELL_KNOWN: &[(&str, &str)] = &[
    (".google.protobuf.BoolValue", "bool"),
    (".google.protobuf.BytesValue", "::prost::bytes::Bytes"),
    (".google.protobuf.Empty", "crate::google::protobuf::Empty"),
    (".google.protobuf.StringValue", "::prost::alloc::string::String"),
    (".google.protobuf", "::prost_types"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("proto");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut sources = Vec::new();
    collect(root, &mut sources)?;
    sources.sort();

    let descriptors = protox::compile(&sources, [root])?;
    let target = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(target, descriptors.encode_to_vec())?;
    generate_messages_and_clients(descriptors.clone())?;
    generate_servers(&descriptors)?;
    Ok(())
}

/// Finds the .proto files under a folder.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(())
}

fn generate_messages_and_clients(descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut builder = tonic_prost_build::configure()
        .build_server(false)
        .bytes(".google")
        .bytes(".tepui")
        .btree_map(".google")
        .compile_well_known_types(true)
        .disable_comments(["."])
        .emit_rerun_if_changed(false);
    for (proto, rust) in WELL_KNOWN {
        builder = builder.extern_path(proto, rust);
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}

fn generate_servers(descriptors: &FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut services = Vec::new();
    for (full_name, methods) in SERVED {
        let (package, name) = full_name.rsplit_once('.').ok_or("a service has a package")?;
        let mut service = manual::Service::builder().package(package).name(name);
        for (method, answers) in *methods {
            let declared = declared(descriptors, package, name, method)
                .ok_or_else(|| format!("{full_name} declares no {method}"))?;
            service = service.method(served(declared, answers));
        }
        services.push(service.build());
    }
    manual::Builder::new().build_client(false).compile(&services);
    Ok(())
}

fn declared<'a>(
    descriptors: &'a FileDescriptorSet,
    package: &str,
    service: &str,
    method: &str,
) -> Option<&'a MethodDescriptorProto> {
    descriptors
        .file
        .iter()
        .filter(|file| file.package() == package)
        .flat_map(|file| &file.service)
        .filter(|candidate| candidate.name() == service)
        .flat_map(|candidate| &candidate.method)
        .find(|candidate| candidate.name() == method)
}

fn served(method: &MethodDescriptorProto, answers: &Answers) -> manual::Method {
    let (output, codec) = match answers {
        AsMessage => (rust_path(method.output_type()), "crate::codec::AdmittingCodec"),
        AsEncoded => ("crate::codec::Encoded".to_owned(), "crate::codec::EncodedCodec"),
    };
    let mut builder = manual::Method::builder()
        .name(snake_case(method.name()))
        .route_name(method.name())
        .input_type(rust_path(method.input_type()))
        .output_type(output)
        .codec_path(codec);
    if method.client_streaming() {
        builder = builder.client_streaming();
    }
    if method.server_streaming() {
        builder = builder.server_streaming();
    }
    builder.build()
}

/// `.google.rpc.Status` is `crate::google::rpc::Status`.
fn rust_path(proto_name: &str) -> String {
    format!("crate{}", proto_name.replace('.', "::"))
}

fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

//! The immutable sorted file: blocks, index, bloom filter, value blocks and block cache

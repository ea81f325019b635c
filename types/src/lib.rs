//! The vocabulary of Tepui: keys, cells, mutations, schemas, ranges, ids and limits; no I/O, no async

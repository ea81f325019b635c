//! Which server serves which range: the catalog and the schema operations

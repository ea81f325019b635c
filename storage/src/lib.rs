//! The file system seam: blobs and logs, with local, in-memory and faulty backends

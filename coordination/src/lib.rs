//! Guarded transactions, watches and leases; the embedded, durable, in-process coordinator

//! The commit log: frames, segments, sync, roll, replay, seal and release

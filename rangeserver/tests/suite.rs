//! The range server over an in-memory disk, a simulated world and a small fake catalog.

mod suite {
    mod basics;
    mod commits;
    mod crashes;
    mod large_values;
    mod planted;
    mod pressure;
    mod world;
}

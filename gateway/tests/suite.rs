//! Tests of the Bigtable API and of the router below it, over tables kept in a map.

mod suite {
    mod admin;
    mod fake;
    mod fake_admin;
    mod hostile;
    mod reads;
    mod routing;
    mod samples;
    mod serving;
    mod world;
    mod writes;
}

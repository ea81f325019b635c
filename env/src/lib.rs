//! What a run cannot repeat: clock, randomness, spawning and blocking sections

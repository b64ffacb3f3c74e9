//! subtend-sim

//! subtend-actors

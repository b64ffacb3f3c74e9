//! subtend

//! subtend-tools

//! subtend-agents

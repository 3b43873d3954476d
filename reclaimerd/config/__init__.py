"""The policy file: TOML in, typed policy out, every fault at once."""

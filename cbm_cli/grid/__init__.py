"""Grid files: YAML text to validated, frozen experiments."""
